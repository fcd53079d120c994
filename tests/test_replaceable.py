"""Which file a path leads to: links, and what other users have put there (replaceable.py)."""

import os
from pathlib import Path

import pytest

from holdfast.durable import replace_file, replacing
from support.owners import ORDINARY_USER, owned

ALICE = 7


def test_a_pipe_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    """As `--out /dev/stdout` names one: by root, the machine would have a file there ever after."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        replace_file(tmp_path / "pipe", b"x", 0o644)
    assert (tmp_path / "pipe").is_fifo() and list(tmp_path.iterdir()) == [tmp_path / "pipe"]


def test_what_links_lead_to_is_replaced_and_the_links_stay(tmp_path: Path) -> None:
    """Also where nothing is there yet."""
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place/other")
    (tmp_path / "place" / "other").symlink_to(tmp_path / "place" / "file")
    for content in (b"first", b"second"):
        replace_file(tmp_path / "link", content, 0o644)
        assert (tmp_path / "place" / "file").read_bytes() == content
    assert (tmp_path / "link").is_symlink() and (tmp_path / "place" / "other").is_symlink()
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["file", "link", "other", "place"]


def test_a_link_to_an_open_file_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """As /dev/stdout is one: by root, the machine would have a file there ever after, and `>> FILE` would lose FILE."""
    with (tmp_path / "out").open("w") as stream:
        stream.write("before")
        stream.flush()
        for place in (f"/proc/self/fd/{stream.fileno()}", f"/dev/fd/{stream.fileno()}"):
            (tmp_path / "link").symlink_to(place)
            for path in (tmp_path / "link", Path(place)):
                with pytest.raises(OSError, match="it stands for an open file, and has no name"):
                    replace_file(path, b"x", 0o644)
            assert (tmp_path / "link").is_symlink()
            (tmp_path / "link").unlink()
    assert (tmp_path / "out").read_bytes() == b"before"


def test_links_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    for path, reason in (
        (tmp_path / "one", "Too many levels of symbolic links"),
        (tmp_path / "one" / "file", "Too many levels of symbolic links"),
        (tmp_path / "none" / "file", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (Path("/"), "Is a directory"),
    ):
        with pytest.raises(OSError, match=reason):
            replace_file(path, b"x", 0o644)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_path_may_go_up_and_through_directories_of_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "way").symlink_to("real/deep")
    monkeypatch.chdir(tmp_path / "real")
    for path, file in (
        (tmp_path / "way" / ".." / "one", "real/one"),
        (Path("deep/../../two"), "two"),
        (Path("../way/three"), "real/deep/three"),
        (Path("four"), "real/four"),
    ):
        replace_file(path, b"x", 0o644)
        assert (tmp_path / file).read_bytes() == b"x"
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        replace_file(tmp_path / "file" / ".." / "five", b"x", 0o644)


def test_a_long_way_needs_few_descriptors(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    replace_file(Path(tmp_path, *["..", tmp_path.name] * 300, "f"), b"x", 0o644)
    assert (tmp_path / "f").read_bytes() == b"x" and len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["link", "conf/target", "conf/none"])
def test_root_follows_no_link_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A site's directory may belong to its node's user, who would choose which file of the machine root replaces: by a
    link to it, or to a directory above it."""
    alice, etc = tmp_path / "alice", tmp_path / "etc"
    alice.mkdir()
    etc.mkdir()
    (etc / "target").write_text("before")
    (alice / "link").symlink_to(etc / "target")
    (alice / "conf").symlink_to(etc)
    owners = dict.fromkeys((alice, alice / "link", alice / "conf"), ALICE)
    owned(monkeypatch, owners, me=0)
    with pytest.raises(OSError, match="a symbolic link of another user, which root does not follow"):
        replace_file(alice / name, b"x", 0o644)
    assert (etc / "target").read_text() == "before" and list(etc.iterdir()) == [etc / "target"]
    owned(monkeypatch, {}, me=0)
    replace_file(alice / name, b"after", 0o644)
    assert (etc / ("none" if name == "conf/none" else "target")).read_text() == "after", "root's own links"


@pytest.mark.parametrize("name", ["link", "conf/target"])
@pytest.mark.parametrize(
    ("of_link", "of_directory", "mode", "follows"),
    [
        (ALICE, 0, 0o1777, False), (ORDINARY_USER, 0, 0o1777, True), (0, 0, 0o1777, True), (ALICE, ALICE, 0o1777, True),
        (ALICE, 0, 0o755, True), (ALICE, 0, 0o1775, True),
    ],
)  # fmt: skip
def test_a_link_in_a_directory_of_all_is_followed_as_the_kernel_does(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    of_link: int,
    of_directory: int,
    mode: int,
    follows: bool,
) -> None:
    """In /tmp: its maker would choose which of my files I replace. The kernel does not let me open it there."""
    shared, mine = tmp_path / "tmp", tmp_path / "mine"
    shared.mkdir()
    mine.mkdir()
    shared.chmod(mode)
    (mine / "target").write_text("before")
    (shared / "link").symlink_to(mine / "target")
    (shared / "conf").symlink_to(mine)
    owners = {shared: of_directory, shared / "link": of_link, shared / "conf": of_link, mine: ORDINARY_USER}
    owned(monkeypatch, owners, me=ORDINARY_USER)
    if follows:
        replace_file(shared / name, b"after", 0o644)
    else:
        with pytest.raises(PermissionError, match="a symbolic link of another user, in a directory in which everybody"):
            replace_file(shared / name, b"after", 0o644)
    assert (mine / "target").read_text() == ("after" if follows else "before")


@pytest.mark.parametrize("mode", [0o600, None])
@pytest.mark.parametrize("directory_mode", [0o1777, 0o777, 0o775, 0o1775])
def test_root_gives_no_file_to_who_has_made_it_where_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None, directory_mode: int
) -> None:
    """In /tmp: root's token would be that user's. The kernel does not open such a file there either."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(directory_mode)
    (shared / "token").write_text("before")
    given = owned(monkeypatch, {shared / "token": ALICE}, me=0)
    said = r"the file would be user 7's: .*token belongs to another user, and not only the owner of .*tmp may write"
    with pytest.raises(PermissionError, match=said), replacing(shared / "token", mode) as file:
        file.write(b"secret")
    assert given == [] and (shared / "token").read_text() == "before"
    (shared / "token").unlink()
    with replacing(shared / "token", mode) as file:
        file.write(b"secret")
    assert ALICE not in dict(given) and (shared / "token").read_text() == "secret"


@pytest.mark.parametrize("name", ["there", "new"])
def test_root_gives_no_file_to_who_has_made_its_directory_where_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """By its owner, a directory says whose a new file is."""
    shared, alice = tmp_path / "tmp", tmp_path / "tmp" / "alice"
    alice.mkdir(parents=True)
    shared.chmod(0o1777)
    (alice / "there").write_text("before")
    given = owned(monkeypatch, {alice: ALICE, alice / "there": ALICE}, me=0)
    monkeypatch.chdir(alice)
    for path in (alice / name, Path(name)):
        with pytest.raises(PermissionError, match="alice belongs to another user, and not only the owner of "):
            replace_file(path, b"secret", 0o600)
    assert given == [] and len(list(alice.iterdir())) == 1
    with replacing(alice / "export") as file:
        file.write(b"root's own")
    assert given == []


@pytest.mark.parametrize("mode", [0o600, None])
@pytest.mark.parametrize(("of_directory", "directory_mode"), [(ALICE, 0o755), (ALICE, 0o775), (0, 0o755)])
def test_root_keeps_a_file_for_the_user_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None, of_directory: int, directory_mode: int
) -> None:
    """A node runs as another user: where only that user or root can have put the file there, it stays that user's."""
    place = tmp_path / "holdfast"
    place.mkdir()
    place.chmod(directory_mode)
    (place / "token").write_text("before")
    given = owned(monkeypatch, {place: of_directory, place / "token": ALICE}, me=0)
    with replacing(place / "token", mode) as file:
        file.write(b"secret")
    assert given == [(ALICE, ALICE)] and (place / "token").read_text() == "secret"


def test_a_link_that_takes_the_place_of_a_directory_meanwhile_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was looked at is held open: who may write above it cannot turn root elsewhere."""
    place, etc = tmp_path / "conf", tmp_path / "etc"
    place.mkdir()
    etc.mkdir()
    with replacing(place / "file", 0o644) as file:
        place.rename(tmp_path / "before")
        place.symlink_to(etc)
        file.write(b"x")
    assert list(etc.iterdir()) == [] and (tmp_path / "before" / "file").read_bytes() == b"x"
