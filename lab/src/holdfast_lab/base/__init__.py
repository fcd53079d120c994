"""What every part of the lab uses: random streams of a seed, the record of what clients saw, child processes, a
progress bar."""
