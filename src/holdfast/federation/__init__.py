"""Federation: how the bindings of a topic reach the nodes that publish to it (docs/adr/0079)."""
