"""The contents of a store's file: its schema, entries in records, blobs, and LMDB's pages."""
