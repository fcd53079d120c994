"""What nodes that are neighbours know of each other: features, session states, aliases."""
