"""Sessions with neighbours, who is let in, and routing joined to them (CUSTODY, "The session"; docs/routing.md)."""
