"""Power loss at every point: what a store asks of its disk is recorded, and recovery runs from every cut.

Rules of this package: the store that is proven is `storage.lmdb` as it is, in a process of its own; nothing here is
loaded by a node (docs/powerloss.md). `shim.c` sees the calls, `record.py` runs the lives, `disk.py` is the disk,
`replay.py` cuts and judges.
"""
