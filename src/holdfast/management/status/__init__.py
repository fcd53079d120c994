"""What `holdfast status` shows, and the warnings in it."""
