"""What all links share, in each direction: large messages, back-pressure, the disk, and failures of what they do."""
