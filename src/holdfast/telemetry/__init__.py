"""The versioned schema of what a node measures and reports."""
