"""The sites of a network: their certificates and their configuration (docs/fleet.md).

Rules of this package: the operator's commands are in `commands`, a site's in `site_commands`; neither a node nor a
client imports it. The secrets of a fleet (the authority's key, tokens) are never logged, and are only printed by the
command that asks for them. Decision: docs/adr/0103-fleet.md.
"""
