"""Federated topics measured on whole nodes, in the simulator's world; `bindings` does so on a model of the network."""
