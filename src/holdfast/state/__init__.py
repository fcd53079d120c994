"""The state of a node on disk, and the gathered turn, which changes it: queues by name, blobs, losses, room."""
