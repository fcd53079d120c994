"""Federation's code over a model of the network: sessions that break, nodes that crash, disks that refuse, tables that
are corrupted (docs/adr/0079)."""
