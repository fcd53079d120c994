"""Defects that are planted to check that they are found: each passes the ordinary tests, and the swarm finds it.

Rules of this package: a canary replaces one function from outside, in one process, for as long as it is planted; the
code has neither the defects nor a switch for them.
"""

from contextlib import AbstractContextManager
from typing import Final

from holdfast_lab.canaries.bound_defects import BOUND_CANARIES
from holdfast_lab.canaries.burst_defects import BURST_CANARIES
from holdfast_lab.canaries.client_defects import CLIENT_CANARIES
from holdfast_lab.canaries.corner_defects import CORNER_CANARIES
from holdfast_lab.canaries.disk_defects import DISK_CANARIES
from holdfast_lab.canaries.driver_defects import DRIVER_CANARIES
from holdfast_lab.canaries.federation_defects import FEDERATION_CANARIES
from holdfast_lab.canaries.hop_defects import HOP_CANARIES
from holdfast_lab.canaries.host_defects import HOST_CANARIES
from holdfast_lab.canaries.link_defects import LINK_CANARIES
from holdfast_lab.canaries.listener_defects import LISTENER_CANARIES
from holdfast_lab.canaries.login_defects import LOGIN_CANARIES
from holdfast_lab.canaries.operator_defects import OPERATOR_CANARIES
from holdfast_lab.canaries.pacing_defects import PACING_CANARIES
from holdfast_lab.canaries.planting import Canary, CanaryStale, by_name, plant_for_good, planted
from holdfast_lab.canaries.policy_defects import POLICY_CANARIES
from holdfast_lab.canaries.queue_defects import QUEUE_CANARIES
from holdfast_lab.canaries.queue_link_defects import QUEUE_LINK_CANARIES
from holdfast_lab.canaries.reader_defects import READER_CANARIES
from holdfast_lab.canaries.remote_defects import REMOTE_CANARIES
from holdfast_lab.canaries.routing_defects import ROUTING_CANARIES
from holdfast_lab.canaries.transaction_defects import TRANSACTION_CANARIES
from holdfast_lab.canaries.undo_defects import UNDO_CANARIES

CANARIES: Final[dict[str, Canary]] = {
    canary.name: canary
    for canary in (
        *HOP_CANARIES,
        *QUEUE_CANARIES,
        *BOUND_CANARIES,
        *DISK_CANARIES,
        *ROUTING_CANARIES,
        *UNDO_CANARIES,
        *CLIENT_CANARIES,
        *LINK_CANARIES,
        *LOGIN_CANARIES,
        *DRIVER_CANARIES,
        *QUEUE_LINK_CANARIES,
        *POLICY_CANARIES,
        *HOST_CANARIES,
        *PACING_CANARIES,
        *BURST_CANARIES,
        *TRANSACTION_CANARIES,
        *FEDERATION_CANARIES,
        *READER_CANARIES,
        *OPERATOR_CANARIES,
        *CORNER_CANARIES,
        *REMOTE_CANARIES,
        *LISTENER_CANARIES,
    )
}


def plant(name: str) -> AbstractContextManager[None]:
    """Plants that defect for the duration of the block. Raises ConfigError for an unknown name, CanaryStale."""
    return planted(by_name(CANARIES, name))


def plant_to_stay(name: str) -> None:
    """As `plant`, for the rest of the process."""
    plant_for_good(by_name(CANARIES, name))


__all__ = ["CANARIES", "Canary", "CanaryStale", "plant", "plant_to_stay"]
