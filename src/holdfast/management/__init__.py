"""What people and programs ask of a node: `$management`, status, where a message is, warnings."""
