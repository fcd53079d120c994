"""The data: addresses, queues, cursors, producers, and custody at the destination. No sockets, no clock."""
