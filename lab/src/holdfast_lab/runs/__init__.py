"""Runs plans on the simulator: carries out faults, checks guarantees, runs many seeds, shrinks a failure."""
