"""Canaries in links between queues.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _nameless(original: Function) -> Function:
    """A link has another id in each life of its node, and does not know again what it has passed on."""

    def _add(self: Any, config: Any, link_id: bytes | None, *, is_created: bool) -> Any:
        return original(self, config, None, is_created=is_created)

    return _add


QUEUE_LINK_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="link-id-of-one-life",
        sentence="A link takes what it has passed on before its node was started again.",
        target="queue_links.links:QueueLinks._add",
        signature=(
            "(self, config: holdfast.settings.LinkConfig, link_id: bytes | None, *, is_created: bool) "
            "-> holdfast.queue_links.link.QueueLink"
        ),
        broken=_nameless,
        expected="was appended twice to linked",
    ),
)
