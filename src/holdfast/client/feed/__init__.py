"""`holdfast feed`: hands in what devices give, each line once. Lines of sockets, serial lines and files go into a
journal on disk, and from there to a node, under a producer's numbers (docs/feed.md).
"""
