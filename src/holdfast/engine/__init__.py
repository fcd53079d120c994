"""What every part of a node stands on: events and commands, the log, and times. Knows neither AMQP nor queues."""
