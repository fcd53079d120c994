"""One view of the network: a few numbers of each node (docs/operations.md, "All nodes at once")."""
