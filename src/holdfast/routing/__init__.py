"""Routing: the nodes of the network, the shortest path to each, and the costs of links (docs/adr/0015-routing.md)."""
