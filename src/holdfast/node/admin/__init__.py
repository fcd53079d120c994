"""The admin port of a node: what it measures for Prometheus, and whether it lives and is ready (docs/operations.md)."""
