"""Connections to brokers that are no nodes: what is sent there, and what is fetched from there (docs/remotes.md).

Rules of this package: a broker is sent plain AMQP only, and nothing that it sends is believed to be a node's.
"""
