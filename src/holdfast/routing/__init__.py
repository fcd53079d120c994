"""Routing: which nodes there are, by which way each is reached, and what a link costs (docs/adr/0015-routing.md)."""
