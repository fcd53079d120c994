"""What arrives at the node that it is for: each once, in order, by a path that is checked."""
