"""Mutation testing: mistakes drawn by a seed, and the tests and seeds that find them (docs/mutants.md)."""
