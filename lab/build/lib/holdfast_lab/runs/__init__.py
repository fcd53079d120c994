"""Plans run on the simulator: faults carried out, promises watched, many seeds, a failure made smaller."""
