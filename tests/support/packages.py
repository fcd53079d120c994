"""The packages that a node's logic is made of."""

NODE = (
    "amqp", "broker", "core", "custody", "endpoints", "engine", "links", "management", "peering", "peers", "state",
)  # fmt: skip
