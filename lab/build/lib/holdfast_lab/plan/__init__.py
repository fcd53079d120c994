"""A run as data, drawn from a seed or written in a scenario: network, workloads, faults, phases and its result."""
