"""A provider's network in virtual time: MPLS, VPNs, shortest paths, fast reroute, and a transport over it."""
