"""Message selectors: conditions on what a message says of itself (docs/selectors.md, docs/adr/0059-selectors.md)."""
