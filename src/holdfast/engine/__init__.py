"""What every part of a node uses: events and commands, the log, and times. It knows neither AMQP nor queues."""
