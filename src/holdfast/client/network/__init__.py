"""From a URL to the wire: one transport with the AMQP engine on it, and the waits between attempts to open it."""
