"""Pacing: how a root shares its rate among the nodes that send to it (docs/adr/0074-pacing.md)."""
