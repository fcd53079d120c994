"""The picture of a run: well-formed, bounded, and it shows what the notes say."""

from xml.etree import ElementTree

from holdfast_lab.base.notes import Note
from holdfast_lab.runs import timeline

SVG = "{http://www.w3.org/2000/svg}"


def note(at: float, place: str, kind: str, text: str = "") -> Note:
    return Note(at, place, kind, text)


RUN = [
    note(0.0, "a", "start", "life 1"),
    note(0.0, "b-c", "start", "life 1"),
    note(0.1, "a", "session", "neighbour=b-c state=Established previous=OpenConfirm reason="),
    note(1.0, "a", "append", "000-00000001 to @b-c"),
    note(1.0, "a", "holds", "1 messages"),
    note(1.5, "b-c", "append", "000-00000001 to q"),
    note(1.5, "b-c", "append", "000-00000001 to q"),
    note(2.0, "fault", "crash", "crash b-c for 2.000 s (0)"),
    note(2.0, "b-c", "crash", "nothing under way"),
    note(2.5, "fault", "slow-link", "slow-link a-b-c for 9.000 s (10)"),
    note(2.6, "fault", "lying-peer", "lying-peer a for 1.000 s (0.5) marks"),
    note(2.7, "fault", "cut", "cut nobody-knows for 0.000 s (0)"),
    note(3.0, "a", "session", "neighbour=b-c state=Idle previous=Established reason=nothing heard <for> 1.5 s"),
    note(4.0, "b-c", "start", "life 2"),
    note(5.0, "fault", "heal"),
    note(6.0, "run", "failed", "Violation: 000-00000001 & more"),
    note(99.0, "a", "crash", "after the verdict"),
]


def test_the_scene_of_the_notes() -> None:
    scene = timeline.read(RUN, 20.0)
    assert scene.lanes == ["a", "b-c"]
    assert scene.hops == [(0, 1.0, 1, 1.5)]
    assert scene.alive == [[(0.0, 20.0)], [(0.0, 2.0), (4.0, 20.0)]]
    assert [(span.text, span.lanes, span.start_s, span.end_s) for span in scene.spans] == [
        ("crash", (1,), 2.0, 4.0),
        ("slow-link 10", (0, 1), 2.5, 5.0),
        ("lying-peer 0.5 marks", (0,), 2.6, 3.6),
    ]
    assert scene.held[0] == [(0.0, 0), (1.0, 1)]
    assert scene.sessions[1] == (3.0, 0, "Idle", "a to b-c: Idle: nothing heard <for> 1.5 s")
    assert (scene.healed_s, scene.failure) == (5.0, (6.0, "Violation: 000-00000001 & more"))
    assert 6.0 < scene.end_s < 6.5


def test_the_picture_is_xml_with_every_name_in_it() -> None:
    text = timeline.draw(RUN, title="two & more, seed 1", end_s=20.0)
    root = ElementTree.fromstring(text)
    words = [item.text for item in root.iter(f"{SVG}text")]
    for wanted in ("a", "b-c", "two & more, seed 1", "crash", "slow-link 10", "no more faults", "at most 1"):
        assert wanted in words
    tips = [item.text for item in root.iter(f"{SVG}title")]
    assert "a to b-c: Idle: nothing heard <for> 1.5 s (3.000 s)" in tips
    assert any("failed at 6.000 s: Violation: 000-00000001 & more" in str(word) for word in words)


def test_a_run_without_notes_is_still_a_picture() -> None:
    ElementTree.fromstring(timeline.draw([], title="nothing", end_s=0.0))


def test_however_long_a_run_was_the_picture_is_bounded() -> None:
    notes = RUN[:2]
    for number in range(5_000):
        at = 1.0 + number * 0.01
        notes.append(note(at, "a", "append", f"000-{number:08d} to @b-c"))
        notes.append(note(at, "a", "holds", f"{number % 50} messages"))
        notes.append(note(at + 0.005, "b-c", "append", f"000-{number:08d} to q"))
        notes.append(note(at, "fault", "cut", "cut a-b-c for 0.000 s (0)"))
        notes.append(note(at, "a", "session", "neighbour=b-c state=Idle previous=Connect reason="))
    text = timeline.draw(notes, title="long", end_s=60.0)
    root = ElementTree.fromstring(text)
    groups = [len(list(group)) for group in root.iter(f"{SVG}g")]
    assert groups == [-(-5_000 // -(-5_000 // timeline.LINES_MAX))] and groups[0] <= timeline.LINES_MAX
    assert "one in 13 drawn" in text
    assert len(list(root.iter(f"{SVG}rect"))) <= timeline.SPANS_MAX + timeline.TICKS_MAX + 10
    for polygon in root.iter(f"{SVG}polygon"):
        assert len(polygon.attrib["points"].split()) <= 2 * timeline.AREA_STEPS_MAX + 8


def test_a_thinned_backlog_keeps_its_peaks() -> None:
    held = [(at / 100, 0) for at in range(5_000)]
    held[2_500] = (25.0, 777)
    steps = timeline._thinned(held, 50.0)
    assert len(steps) <= timeline.AREA_STEPS_MAX + 1 and max(count for _, count in steps) == 777
