"""Raw reads of tags at one airport, which a step of a link there cleans before they travel (docs/demo.md).

Rules of this file: a reader at a gate reports each tag again and again; the tags are those of the airport's first
flights. All is done by the command line; what is claimed is compared with what came to the hub.
"""

import csv
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast_lab.base.processes import Children, holdfast_command

SITE: Final = "jfk"
RAW: Final = "raw-reads"
READS: Final = "reads"
LINK: Final = "clean-reads"
TAGS_MAX: Final = 120
TIMES: Final = 5
"""So often is each tag read."""
WITHIN_S: Final = 600
LIMIT_S: Final = 60.0
STEPS: Final = f'steps = [{{ drop_repeats = {{ key = "tag", within_s = {WITHIN_S} }} }}]\n'


@dataclass(frozen=True, slots=True)
class Reads:
    """`raw`: sent at the airport; `travelled`: came to the hub; `ok`: each tag came once."""

    raw: int
    travelled: int
    ok: bool

    def line(self) -> str:
        verdict = "each tag once" if self.ok else "not each tag once"
        return f"tags read {self.raw:,} times at {SITE}, {self.travelled:,} reads travelled to the hub: {verdict}"


def raw_reads(tags: Sequence[str]) -> list[str]:
    """Each tag TIMES times: a reader sees ten of them at a time, again and again."""
    return [tag for at in range(0, len(tags), 10) for _ in range(TIMES) for tag in tags[at : at + 10]]


class TagReads:
    """`url` of a node by its name; `hub` is where reads end."""

    def __init__(self, children: Children, work: Path, url: Callable[[str], str], hub: str) -> None:
        self._children = children
        self._work = work
        self._url = url
        self._hub = hub
        self._tags: list[str] = []

    async def prepare(self, tags: Sequence[str]) -> None:
        """Makes queues and link. `tags`: of the airport's flights."""
        self._tags = list(tags[:TAGS_MAX])
        steps = self._work / "steps.toml"
        steps.write_text(STEPS, encoding="utf-8")
        with (self._work / "reads.csv").open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([["tag"], *([tag] for tag in raw_reads(self._tags))])
        await self._done("queue", "create", READS, "--url", self._url(self._hub))
        await self._done("queue", "create", RAW, "--url", self._url(SITE))
        to = ("--from", RAW, "--to", f"{READS}@{self._hub}", "--steps-file", steps)
        await self._done("link", "create", LINK, *to, "--url", self._url(SITE))

    async def send(self, send_s: float) -> Callable[[], Coroutine[Any, Any, None]]:
        """Begins to send for so many seconds; what it returns waits for the end of that."""
        rate = f"{max(0.1, TIMES * len(self._tags) / send_s):.2f}"
        command = holdfast_command(
            "send", RAW, self._work / "reads.csv", "--format", "csv", "--rate", rate, "--producer", "reader",
            "--resume", "--url", self._url(SITE),
        )  # fmt: skip
        sender = await self._children.start("send-reads", command)
        return sender.success

    async def result(self) -> Reads:
        """What came to the hub; called when all is sent."""
        command = holdfast_command(
            "receive", READS, "--count", max(1, len(self._tags)), "--idle-timeout", "10", "--json", "--url",
            self._url(self._hub),
        )  # fmt: skip
        child = await self._children.start("receive-reads", command)
        await child.wait(LIMIT_S)
        found = [json.loads(line)["properties"]["tag"] for line in child.out_path.read_text("utf-8").splitlines()]
        links = await self._done("link", "list", "--json", "--url", self._url(SITE))
        (told,) = [row for row in json.loads(links) if row["name"] == LINK]
        raw = TIMES * len(self._tags)
        ok = sorted(found) == sorted(self._tags) and told["moved_total"] + told["dropped_total"] == raw
        return Reads(raw, len(found), ok)

    async def _done(self, *arguments: str | Path) -> str:
        child = await self._children.start("reads", holdfast_command(*arguments))
        await child.success(LIMIT_S)
        text = child.out_path.read_text("utf-8")
        if not text:
            raise HoldfastError(f"holdfast {arguments[0]} {arguments[1]} said nothing")
        return text
