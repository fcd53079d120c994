"""A store's directory and the file in it: held, opened, grown, read by others beside the node, copied."""
