"""The network side of a node's process: sockets, dials, what the kernel says of them."""
