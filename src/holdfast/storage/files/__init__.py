"""A store's directory and its file: locking, opening, growing, reading by other processes, copying."""
