"""Messages as programs see them: bodies, payloads, and JSON with AMQP's types."""
