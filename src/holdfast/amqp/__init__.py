"""AMQP 1.0 without input or output: bytes in, events out (connection.py is its surface)."""
