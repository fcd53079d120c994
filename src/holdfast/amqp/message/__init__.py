"""Messages: their sections, and bodies that are made and read."""
