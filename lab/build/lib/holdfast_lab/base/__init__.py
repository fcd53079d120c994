"""What every part of the lab stands on: a seed's random streams, what clients saw, child processes, a progress bar."""
