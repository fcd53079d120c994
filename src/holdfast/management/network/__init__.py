"""One view of the network: what each node says of itself in a few numbers (docs/operations.md, "All nodes at once")."""
