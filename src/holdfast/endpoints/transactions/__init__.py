"""Local transactions of clients (AMQP 1.0 part 4; docs/adr/0060)."""
