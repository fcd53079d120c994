"""Messages as one node sends them to the next: one by one, and in runs."""
