"""Which nodes there are, how they are joined, and the shortest way from each to each (docs/adr/0015-routing.md)."""
