"""Management of a node: `$management`, status, where a message is, warnings, triggers."""
