"""A durable subscriber at the hub with a predicate, which is away while the flights travel and then gets the late ones
only (docs/demo.md).

Rules of this file: all is done by the command line; what is claimed is compared with the data. The columns of a CSV are
text, so the predicate does not compare numbers: it asks for a delay of three digits.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.errors import HoldfastError
from holdfast_lab.base.processes import Children, holdfast_command

TOPIC: Final = "topic/departures"
LINK: Final = "announce"
SUBSCRIPTION: Final = "late-desk"
PREDICATE: Final = "dep_delay LIKE '___%' AND dep_delay NOT LIKE '-%'"
LATE_MIN: Final = 100
"""A flight is late that departs so many minutes after its time, or more."""
IDLE_S: Final = 3
LIMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Late:
    """`announced`: flights that the topic was given; `received`: what the subscriber got; `ok`: it got all that are
    late, each once, and no others."""

    announced: int
    received: int
    ok: bool

    def line(self) -> str:
        verdict = "all that are late, and no others" if self.ok else "not the late ones"
        return f"{self.announced:,} departures announced, {self.received:,} to the subscriber to late ones: {verdict}"


def late_ids(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The flights that are late, by the data; a cancelled one (`NA`) is not."""
    delay = header.index("dep_delay")
    return [row[0] for row in rows if row[delay] != "NA" and float(row[delay]) >= LATE_MIN]


class LateFlights:
    """`url` of the hub; `queue`: where the flights end."""

    def __init__(self, children: Children, url: Callable[[], str], queue: str) -> None:
        self._children = children
        self._url = url
        self._queue = queue

    async def prepare(self) -> None:
        """Makes the topic, the link that copies each flight to it, and the subscription; the subscriber leaves."""
        await self._done("queue", "create", TOPIC)
        await self._done("link", "create", LINK, "--from", self._queue, "--to", TOPIC, "--copy")
        await self._received("1")

    async def result(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Late:
        """What the subscriber gets when it is back; called when all flights have come."""
        lines = (await self._received(str(IDLE_S))).splitlines()
        found = [json.loads(line)["properties"]["id"] for line in lines]
        (told,) = [row for row in json.loads(await self._done("link", "list", "--json")) if row["name"] == LINK]
        announced = told["moved_total"]
        ok = sorted(found) == sorted(late_ids(header, rows)) and announced == len(rows)
        return Late(announced, len(found), ok)

    async def _received(self, idle_s: str) -> str:
        """What comes until nothing does for so long, as JSON lines."""
        return await self._output(
            "receive", TOPIC, "--subscription", SUBSCRIPTION, "--selector", PREDICATE, "--idle-timeout", idle_s,
            "--json",
        )  # fmt: skip

    async def _done(self, *arguments: str | Path) -> str:
        text = await self._output(*arguments)
        if not text:
            raise HoldfastError(f"holdfast {arguments[0]} {arguments[1]} said nothing")
        return text

    async def _output(self, *arguments: str | Path) -> str:
        child = await self._children.start("late", holdfast_command(*arguments, "--url", self._url()))
        await child.success(LIMIT_S)
        return child.out_path.read_text("utf-8")
