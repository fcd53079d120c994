"""Links between queues, as an administrator makes them: each moves or copies messages from a queue to another address
(docs/adr/0065)."""
