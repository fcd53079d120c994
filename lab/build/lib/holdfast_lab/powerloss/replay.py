"""Cuts the power at every place of a log and judges what recovery makes of each disk that may be left.

Rules of this file: every draw comes from (seed, cut, variant), so that one image is made again by these three. A
store is right if it holds, in full, one state that it was in: none older than the last that anyone was told of
before the cut (a commit that returned, a store that was opened and read), none newer than the last one begun.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from holdfast_lab.powerloss.calls import Record, RecordingFailed, parted
from holdfast_lab.powerloss.check import Examiner, after_probe
from holdfast_lab.powerloss.disk import VARIANTS, Disk, Image
from holdfast_lab.powerloss.record import STORE
from holdfast_lab.powerloss.workload import State, draw_batch, is_mint

VIOLATIONS_MAX: Final = 20
"""After so many the replay ends: they have one cause."""

MEMORY: Final = Path("/dev/shm")
"""Images lie there if they can: what is recorded is the truth, their own syncs would only cost time."""

NEW: Final = State()


@dataclass(frozen=True, slots=True)
class Span:
    """One state of the store: records (by index) with which it was begun, and told of."""

    state: State
    digest: str
    probed: str
    begun: int
    told: int


@dataclass(frozen=True, slots=True)
class Violation:
    """What to ask for to see it again, and what is wrong."""

    seed: int
    cut: int
    variant: str
    what: str


@dataclass(slots=True)
class Replayed:
    """`cuts`: places at which the power went; `images`: different disks opened; `variants`: of these, by manner."""

    cuts: int = 0
    images: int = 0
    variants: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "cuts": self.cuts,
            "images": self.images,
            "variants": dict(sorted(self.variants.items())),
            "violations": [asdict(violation) for violation in self.violations],
        }


class History:
    """The states that the marks in `records` tell of, in order. Raises `RecordingFailed` if they contradict."""

    def __init__(self, records: Sequence[Record], seed: int) -> None:
        self.spans: list[Span] = []
        self.counts: Counter[str] = Counter()
        self._seed = seed
        self._state = NEW
        begun: tuple[int, int] | None = None
        for index, one in enumerate(records):
            if one.kind != "M":
                continue
            mark = one.mark
            self.counts[mark["did"]] += 1
            match mark["did"]:
                case "begin":
                    begun = (mark["step"], index)
                case "commit" | "mint":
                    assert begun is not None
                    self._add(begun, index, mark.get("uuid"))
                    begun = None
                case "full":
                    begun = None
                case "open":
                    self._opened(mark, begun, index)
                    begun = None
                case _:
                    pass

    def _add(self, begun: tuple[int, int], told: int, uuid: str | None) -> None:
        number, index = begun
        if is_mint(number):
            self._state = self._state.minted(number, uuid or "")
        else:
            self._state = self._state.after(draw_batch(self._seed, number, self._state))
        self._append(index, told)

    def _append(self, begun: int, told: int) -> None:
        state = self._state
        self.spans.append(Span(state, state.digest(), after_probe(state).digest(), begun, told))

    def _opened(self, mark: dict[str, Any], begun: tuple[int, int] | None, index: int) -> None:
        """A store was opened; `begun` is what a process that was killed had under way."""
        if not self.spans:
            self._state = State(uuid=mark["uuid"])
            self._append(0, index)
        elif begun is not None and (mark["step"] == begun[0] or mark["uuid"] != self._state.uuid):
            self.counts["killed after the write"] += 1
            self._add(begun, index, mark["uuid"])
        elif begun is not None:
            self.counts["killed before the write"] += 1
        if (mark["step"], mark["uuid"]) != (self._state.step, self._state.uuid):
            raise RecordingFailed(f"opened at step {mark['step']}, and the log leads to {self._state.step}")

    def allowed(self, cut: int) -> tuple[list[Span], bool]:
        """States that a store cut off before record `cut` may hold; and whether it may be a new one."""
        told = [place for place, span in enumerate(self.spans) if span.told < cut]
        least = told[-1] if told else 0
        return [span for span in self.spans[least:] if span.begun < cut], not told


def places(records: Sequence[Record]) -> list[int]:
    """All cuts: before each call, and at the end. Marks move nothing, so the strictest of a run of them counts."""
    return [index for index, one in enumerate(records) if one.kind != "M"] + [len(records)]


class Replay:
    """One log against one disk. `ignored`: see `Disk`."""

    def __init__(self, records: Sequence[Record], seed: int, ignored: frozenset[str] = frozenset()) -> None:
        self.records = parted(list(records))
        self.seed = seed
        self.history = History(self.records, seed)
        self._image = Path()
        self._ignored = ignored

    def run(
        self,
        *,
        cuts: int | None = None,
        variants: Sequence[str] = VARIANTS,
        draws: int = 1,
        only: int | None = None,
        violations_max: int = VIOLATIONS_MAX,
    ) -> Replayed:
        """`cuts`: how many, drawn; None for all. `draws`: images drawn of each variant. `only`: this one cut."""
        wanted = places(self.records)
        if only is not None:
            wanted = [place for place in wanted if place == only]
        elif cuts is not None and cuts < len(wanted):
            wanted = sorted(Random(f"cuts {self.seed}").sample(wanted, cuts))
        answer = Replayed()
        examiner = Examiner()
        work = Path(tempfile.mkdtemp(prefix="holdfast-powerloss-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
        self._image = work / "image"
        try:
            for cut, disk in self._disks(wanted):
                answer.cuts += 1
                for variant, image in self._images(cut, disk, variants, draws):
                    answer.images += 1
                    answer.variants[variant] += 1
                    if what := self._judge(cut, image, examiner):
                        answer.violations.append(Violation(self.seed, cut, variant, what))
                        if len(answer.violations) >= violations_max:
                            return answer
        finally:
            examiner.close()
            shutil.rmtree(work, ignore_errors=True)
        return answer

    def _disks(self, wanted: Sequence[int]) -> Iterator[tuple[int, Disk]]:
        disk = Disk(self._ignored)
        done = 0
        for cut in wanted:
            for one in self.records[done:cut]:
                disk.apply(one)
            done = cut
            yield cut, disk

    def _images(self, cut: int, disk: Disk, variants: Sequence[str], draws: int) -> Iterator[tuple[str, Image]]:
        """Different ones only: with nothing pending there is one."""
        known: set[tuple[object, ...]] = set()
        for draw in range(draws):
            for variant in variants:
                image = Image(disk, variant, Random(f"image {self.seed} {cut} {variant} {draw}"))
                choices = tuple(image.choices)
                if choices not in known:
                    known.add(choices)
                    yield variant, image

    def _judge(self, cut: int, image: Image, examiner: Examiner) -> str:
        """What is wrong, in a line; empty if nothing is."""
        shutil.rmtree(self._image, ignore_errors=True)
        self._image.mkdir(parents=True)
        image.write(self._image)
        answer = examiner.examine(self._image / STORE)
        allowed, may_be_new = self.history.allowed(cut)
        for word in ("died", "failed", "refused"):
            if word in answer and not (word == "refused" and may_be_new and "found" not in answer):
                return f"{word}: {answer[word]}"
        if "refused" in answer:
            return ""
        for span in allowed:
            if (span.digest, span.state.uuid) == (answer["found"], answer["uuid"]):
                if (span.probed, span.state.uuid) == (answer["probed"], answer["uuid_probed"]):
                    return ""
                return f"right at step {answer['step']}, wrong after the next commits"
        if may_be_new and answer["found"] == NEW.digest() and answer["probed"] == after_probe(NEW).digest():
            return ""
        steps = [span.state.step for span in allowed]
        told = f"steps {steps[0]} to {steps[-1]}" if steps else "a new store"
        return f"holds step {answer['step']} or less than all of it; may hold: {told}"
