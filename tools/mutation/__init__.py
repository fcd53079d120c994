"""How good the checks are, measured: mistakes planted by a seed's draw, and who finds them (docs/mutants.md)."""
