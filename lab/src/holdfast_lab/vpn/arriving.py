"""When messages are generated: exponential intervals, whose mean changes with the burst.

Rules of this file: a client's times depend on seed, number and pattern alone, never on what the network does, so that
all policies meet the same messages. Source: traffic-control §4.3.
"""

from collections.abc import Iterator
from random import Random

from holdfast_lab.vpn.parameters import MEANS_S, Experiment


def times(experiment: Experiment, client: int) -> Iterator[float]:
    """The times at which the client generates messages, without end."""
    rng = Random(f"vpn {experiment.seed} {client}")
    calm = 1 / MEANS_S[experiment.pattern(client) - 1]
    begins, ends = experiment.burst_s
    stages = [(calm, begins), (experiment.burst_of(client), ends), (calm, float("inf"))]
    if not experiment.bursts(client):
        stages = [(calm, float("inf"))]
    at = 0.0
    for rate, until in stages:
        while True:
            following = at + rng.expovariate(rate)
            if following >= until:
                at = until  # an exponential interval has no memory: the next begins here
                break
            at = following
            yield at
