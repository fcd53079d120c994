"""Links: what both ends share, sender and receiver, deliveries under way, and what is resumed."""
