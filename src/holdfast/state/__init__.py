"""What a node has on disk, and what the gathered turn changes of it: queues by name, blobs, losses, room."""
