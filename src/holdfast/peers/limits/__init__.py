"""What one peer may use, and what it costs to go on."""
