"""Sessions with neighbours, admission of connections, and routing over the sessions (CUSTODY, "The session";
docs/routing.md)."""
