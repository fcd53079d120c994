"""The network side of a node's process: sockets, dials, reports of the kernel."""
