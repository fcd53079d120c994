"""What is configured of a node, as frozen dataclasses that are checked."""
