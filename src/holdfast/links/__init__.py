"""What all links share, in each direction: large messages, back-pressure, the state of the disk, and containment of
failures."""
