"""The sites of a network: their certificates and their configuration (docs/fleet.md).

Rules of this package: what it does for an operator is in `commands`, for a site in `site_commands`; neither a node nor
a client imports it. The secrets of a fleet (key of the authority, tokens) are printed nowhere but where they are asked
for, and logged nowhere. Decision: docs/adr/0103-fleet.md.
"""
