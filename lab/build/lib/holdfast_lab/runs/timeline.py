"""A simulated run as one picture: nodes as lanes, time to the right, messages as lines between them (SVG).

Rules of this file: pure drawing, from a run's notes to text; no dependency. However long a run was, the picture stays
bounded: messages are sampled, backlogs are thinned, labels that would overlap are left to the tooltips.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

from holdfast_lab.base.notes import Note

LINES_MAX: Final = 400
"""Message lines in one picture."""
AREA_STEPS_MAX: Final = 600
"""Corners of one lane's backlog."""
TICKS_MAX: Final = 2_000
SPANS_MAX: Final = 500

WIDTH: Final = 1_200
LEFT: Final = 96
RIGHT: Final = 24
TOP: Final = 84
LANE: Final = 104
BASE: Final = 78
"""From a lane's top to its line."""
AREA: Final = 34
"""Height of the highest backlog."""

_INK: Final = "#222222"
_QUIET: Final = "#767676"
_GRID: Final = "#ececec"
_MESSAGE: Final = "#2f6db3"
_BACKLOG: Final = "#c9d6e6"
_UP: Final = "#2e8b57"
_DOWN: Final = "#c0392b"
_BETWEEN: Final = "#c9a227"
_LINK_FAULT: Final = "#f3d9b1"
_NODE_FAULT: Final = "#f2c4c0"

_ENDS: Final = ("crash", "power", "stopped")
_DESCRIBED: Final = re.compile(
    r"^(?P<kind>\S+) (?P<where>.+) for (?P<seconds>[\d.]+) s \((?P<amount>[^)]*)\)(?: (?P<lie>\S+))?$"
)
_SESSION: Final = re.compile(r"neighbour=(?P<neighbour>\S+) state=(?P<state>\S+)(?: .*?reason=(?P<reason>.*))?")


@dataclass(slots=True)
class Span:
    """A fault: `lanes` it touches (one or two), seconds since the run's start."""

    text: str
    lanes: tuple[int, ...]
    start_s: float
    end_s: float


@dataclass(slots=True)
class Scene:
    """What a run's notes say, ready to be drawn. Lanes are numbered in the order in which the nodes first started."""

    lanes: list[str] = field(default_factory=list)
    alive: list[list[tuple[float, float]]] = field(default_factory=list)
    """By lane: from when to when the node ran."""
    hops: list[tuple[int, float, int, float]] = field(default_factory=list)
    """(lane, stored there at, next lane, stored there at), by the last."""
    held: list[list[tuple[float, int]]] = field(default_factory=list)
    """By lane: (since when, messages on its disk)."""
    spans: list[Span] = field(default_factory=list)
    sessions: list[tuple[float, int, str, str]] = field(default_factory=list)
    """(when, lane, state, text)."""
    healed_s: float | None = None
    failure: tuple[float, str] | None = None
    end_s: float = 1.0


def read(notes: Sequence[Note], end_s: float) -> Scene:
    """The scene of the notes up to `end_s`."""
    scene = Scene(end_s=max(end_s, 0.001))
    numbers: dict[str, int] = {}
    for note in notes:
        if note.kind == "start" and note.place not in numbers:
            numbers[note.place] = len(scene.lanes)
            scene.lanes.append(note.place)
            scene.alive.append([])
            scene.held.append([(0.0, 0)])
    began: dict[int, float] = {}
    last: dict[str, tuple[int, float]] = {}
    for note in notes:
        if note.at > end_s:
            break
        if note.place == "fault":
            _fault(scene, numbers, note)
            continue
        if note.kind == "failed":
            scene.failure = note.at, note.text
        lane = numbers.get(note.place)
        if lane is None:
            continue
        if note.kind == "start":
            began[lane] = note.at
        elif note.kind in _ENDS or (note.kind == "disk" and "failed" in note.text):
            if lane in began:
                scene.alive[lane].append((began.pop(lane), note.at))
        elif note.kind == "append":
            key = note.text.partition(" ")[0]
            before = last.get(key)
            last[key] = lane, note.at
            if before is not None and before[0] != lane:
                scene.hops.append((*before, lane, note.at))
        elif note.kind == "holds":
            scene.held[lane].append((note.at, int(note.text.partition(" ")[0])))
        elif note.kind == "session":
            told = _SESSION.match(note.text)
            if told is not None:
                reason = f": {told['reason']}" if told["reason"] else ""
                text = f"{note.place} to {told['neighbour']}: {told['state']}{reason}"
                scene.sessions.append((note.at, lane, told["state"], text))
    for lane, at in began.items():
        scene.alive[lane].append((at, scene.end_s))
    scene.end_s = min(scene.end_s, 1.03 * _last(scene))
    return scene


def _last(scene: Scene) -> float:
    """When the last thing happened that can be seen."""
    return max(
        (
            *(arrived for _, _, _, arrived in scene.hops),
            *(held[-1][0] for held in scene.held),
            *(at for at, _, _, _ in scene.sessions),
            *(span.end_s for span in scene.spans),
            scene.healed_s or 0.0,
            scene.failure[0] if scene.failure is not None else 0.0,
            0.01,
        )
    )


def _fault(scene: Scene, numbers: dict[str, int], note: Note) -> None:
    if note.kind == "heal":
        scene.healed_s = note.at
        for span in scene.spans:
            span.end_s = min(span.end_s, note.at)
        return
    told = _DESCRIBED.match(note.text)
    if told is None or len(scene.spans) >= SPANS_MAX:
        return
    lanes = _lanes_of(told["where"], numbers)
    if lanes:
        amount = f" {told['amount']}" if told["amount"] not in ("", "0") else ""
        lie = f" {told['lie']}" if told["lie"] else ""
        scene.spans.append(Span(f"{told['kind']}{amount}{lie}", lanes, note.at, note.at + float(told["seconds"])))


def _lanes_of(where: str, numbers: dict[str, int]) -> tuple[int, ...]:
    """A node's lane, or a link's two; names may hold the dash that joins them."""
    if where in numbers:
        return (numbers[where],)
    for index, character in enumerate(where):
        if character == "-" and where[:index] in numbers and where[index + 1 :] in numbers:
            return (numbers[where[:index]], numbers[where[index + 1 :]])
    return ()


# -------------------------------------------------------------------------------------------------------- drawing


def draw(notes: Sequence[Note], *, title: str, end_s: float) -> str:
    """The picture as SVG text, 1,200 wide, 104 high for each node. `notes`: with the messages' (a kept log)."""
    return _Drawing(read(notes, end_s), title).text()


class _Drawing:
    def __init__(self, scene: Scene, title: str) -> None:
        self.scene = scene
        self.title = title
        self.height = TOP + LANE * max(1, len(scene.lanes)) + 44
        self.out: list[str] = []
        self.labels: list[tuple[float, float, str]] = []
        """Faults' names, written last so that no line crosses them out."""

    def x(self, at: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * min(at, self.scene.end_s) / self.scene.end_s, 1)

    def y(self, lane: int) -> int:
        return TOP + LANE * lane + BASE

    def text(self) -> str:
        self._add(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height}" '
            f'viewBox="0 0 {WIDTH} {self.height}" font-family="Helvetica, Arial, sans-serif" font-size="11">'
        )
        self._add(f'<rect width="{WIDTH}" height="{self.height}" fill="#ffffff"/>')
        self._grid()
        self._spans()
        self._backlogs()
        self._messages()
        self._lanes()
        self._sessions()
        self._moments()
        for x, y, text in self.labels:
            self._words(x, y, text, size=10)
        self._heading()
        self._add("</svg>")
        return "\n".join(self.out) + "\n"

    def _add(self, line: str) -> None:
        self.out.append(line)

    def _words(self, x: float, y: float, text: str, *, colour: str = _INK, size: int = 11, anchor: str = "") -> None:
        where = f' text-anchor="{anchor}"' if anchor else ""
        self._add(f'<text x="{x}" y="{y}" fill="{colour}" font-size="{size}"{where}>{escape(text)}</text>')

    def _line(self, ends: tuple[float, float, float, float], colour: str, width: float, more: str = "") -> None:
        x1, y1, x2, y2 = ends
        self._add(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}"'
            f"{' ' + more if more else ''}/>"
        )

    def _grid(self) -> None:
        bottom = self.height - 34
        step = _step(self.scene.end_s)
        count = int(self.scene.end_s / step + 1e-9)
        for number in range(count + 1):
            at = number * step
            self._line((self.x(at), TOP - 8, self.x(at), bottom), _GRID, 1)
            self._words(self.x(at), bottom + 14, f"{at:g}", colour=_QUIET, anchor="middle")
        self._words(WIDTH - RIGHT, bottom + 28, "seconds of virtual time", colour=_QUIET, anchor="end")

    def _spans(self) -> None:
        written: dict[float, float] = {}
        for span in sorted(self.scene.spans, key=lambda item: item.start_s):
            left, right = self.x(span.start_s), self.x(span.end_s)
            names = " to ".join(self.scene.lanes[lane] for lane in span.lanes)
            tip = escape(f"{span.text}, {names}, {span.start_s:.3f} to {span.end_s:.3f} s")
            bands = self._bands(span)
            for top, bottom in bands:
                self._add(
                    f'<rect x="{left}" y="{top}" width="{round(max(2.0, right - left), 1)}" '
                    f'height="{bottom - top}" fill="{_LINK_FAULT if len(span.lanes) == 2 else _NODE_FAULT}" '
                    f'fill-opacity="0.7"><title>{tip}</title></rect>'
                )
            top = bands[0][0]
            words = top + 12
            if left >= written.get(words, 0.0):
                self.labels.append((left + 4, words, span.text))
                written[words] = left + 8 + 5.5 * len(span.text)

    def _bands(self, span: Span) -> list[tuple[int, int]]:
        """From where to where it is painted: a node's lane, what lies between two neighbouring lanes, or the edges of
        two that are apart."""
        low, high = min(span.lanes), max(span.lanes)
        if low == high:
            return [(self.y(low) - BASE + 8, self.y(low) + 12)]
        if high == low + 1:
            return [(self.y(low) + 2, self.y(high) - 2)]
        return [(self.y(low) + 2, self.y(low) + 22), (self.y(high) - 22, self.y(high) - 2)]

    def _backlogs(self) -> None:
        most = max((count for held in self.scene.held for _, count in held), default=0)
        if not most:
            return
        for lane, held in enumerate(self.scene.held):
            steps = _thinned(held, self.scene.end_s)
            points = [f"{self.x(0)},{self.y(lane)}"]
            level = float(self.y(lane))
            for at, count in steps:
                points.append(f"{self.x(at)},{level}")
                level = round(self.y(lane) - AREA * count / most, 1)
                points.append(f"{self.x(at)},{level}")
            points += [f"{self.x(self.scene.end_s)},{level}", f"{self.x(self.scene.end_s)},{self.y(lane)}"]
            highest = max(count for _, count in held)
            self._add(
                f'<polygon points="{" ".join(points)}" fill="{_BACKLOG}" fill-opacity="0.85">'
                f"<title>{escape(self.scene.lanes[lane])} held {highest:,} messages at most</title></polygon>"
            )
            self._words(LEFT - 8, self.y(lane) + 14, f"at most {highest:,}", colour=_QUIET, size=9, anchor="end")

    def _messages(self) -> None:
        hops = self.scene.hops
        every = -(-len(hops) // LINES_MAX) if hops else 1
        self._add(f'<g stroke="{_MESSAGE}" stroke-width="0.7" stroke-opacity="0.45">')
        for lane, stored, other, arrived in hops[::every]:
            self._add(f'<line x1="{self.x(stored)}" y1="{self.y(lane)}" x2="{self.x(arrived)}" y2="{self.y(other)}"/>')
        self._add("</g>")
        share = "" if every == 1 else f", one in {every} drawn"
        self._words(
            LEFT,
            60,
            f"A line: a message, from the moment a node stored it to the moment the next one did "
            f"({len(hops):,} in all{share}). A hill: messages on that disk.",
            colour=_QUIET,
        )

    def _lanes(self) -> None:
        for lane, name in enumerate(self.scene.lanes):
            y = self.y(lane)
            self._words(LEFT - 8, y - 1, name, size=13, anchor="end")
            self._line((LEFT, y, WIDTH - RIGHT, y), "#bbbbbb", 1, 'stroke-dasharray="2 4"')
            for start, end in self.scene.alive[lane]:
                self._line((self.x(start), y, self.x(end), y), _INK, 2.5)

    def _sessions(self) -> None:
        for at, lane, state, text in self.scene.sessions[:TICKS_MAX]:
            colour = {"Established": _UP, "Idle": _DOWN}.get(state, _BETWEEN)
            x, y = self.x(at), self.y(lane)
            self._add(
                f'<rect x="{round(x - 1, 1)}" y="{y + 3}" width="2" height="7" fill="{colour}">'
                f"<title>{escape(text)} ({at:.3f} s)</title></rect>"
            )

    def _moments(self) -> None:
        bottom = self.height - 34
        scene = self.scene
        if scene.healed_s is not None:
            x = self.x(scene.healed_s)
            self._line((x, TOP - 8, x, bottom), _UP, 1, 'stroke-dasharray="5 4"')
            self._words(x - 4, TOP - 10, "no more faults", colour=_UP, size=10, anchor="end")
        if scene.failure is not None:
            at, text = scene.failure
            self._line((self.x(at), TOP - 8, self.x(at), bottom), _DOWN, 1.5)
            short = text if len(text) < 150 else f"{text[:149]}…"
            self._words(LEFT, self.height - 6, f"failed at {at:.3f} s: {short}", colour=_DOWN)

    def _heading(self) -> None:
        self._words(LEFT, 24, self.title, size=15)
        at = LEFT
        for colour, text in (
            (_NODE_FAULT, "fault of a node"),
            (_LINK_FAULT, "fault of a link"),
            (_UP, "session established"),
            (_BETWEEN, "session on its way"),
            (_DOWN, "session idle"),
        ):
            self._add(f'<rect x="{at}" y="34" width="10" height="10" fill="{colour}"/>')
            self._words(at + 14, 43, text, colour=_QUIET)
            at += 24 + 6 * len(text)
        self._words(at, 43, "a node's line is dotted while it is down", colour=_QUIET)


def _thinned(held: Sequence[tuple[float, int]], end_s: float) -> list[tuple[float, int]]:
    """At most AREA_STEPS_MAX of the steps: of each slice of time the highest."""
    if len(held) <= AREA_STEPS_MAX:
        return list(held)
    times = [at for at, _ in held]
    found = []
    for number in range(AREA_STEPS_MAX):
        low = end_s * number / AREA_STEPS_MAX
        high = end_s * (number + 1) / AREA_STEPS_MAX
        first, behind = bisect_right(times, low), bisect_right(times, high)
        # Nothing new in this slice: the level of before lasts.
        inside = held[first:behind] or held[max(0, first - 1) : max(1, first)]
        found.append((low, max(count for _, count in inside)))
    return [*found, (end_s, held[-1][1])]


def _step(span_s: float) -> float:
    """Of 1, 2, 5 times a power of ten, the one that gives about a dozen marks."""
    step = 0.001
    while True:
        for factor in (1, 2, 5):
            if span_s / (step * factor) <= 14:
                return step * factor
        step *= 10


__all__ = ["Scene", "Span", "draw", "read"]
