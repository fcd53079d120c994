"""What lies in a store's file: its schema, entries in their records, blobs, and the pages that LMDB makes of them."""
