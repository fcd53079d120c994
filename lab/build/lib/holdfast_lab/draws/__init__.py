"""What a seed of the swarm draws: `drawn_static.py` or `drawn_routing.py`, and what the others add to either."""
