"""Real nodes as processes on this machine: the testbed, the fleet, the kill -9 campaign, the proxy that cuts links."""
