"""Links between queues, which an administrator creates: each moves or copies messages from a queue to another address
(docs/adr/0065)."""
