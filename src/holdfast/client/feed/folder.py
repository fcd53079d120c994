"""Lines of the files of a folder, which grow, are renamed and are deleted meanwhile.

Rules of this file: a file is its inode, whatever its name, so one that was rotated by a rename is read on. The journal
has the position up to which it was read; a checksum at the position shows whether the inode is still that file. Looking
and reading are a thread's work, of bounded size for each file before the next. A line counts once its end is there.
"""

import asyncio
import fnmatch
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.client.feed.cutting import Cutter
from holdfast.client.feed.intake import Given, Intake
from holdfast.client.feed.places import MARK_OF_BYTES, FileId, Place, mark_of
from holdfast.client.verbs.running import in_thread
from holdfast.errors import ConfigError

READ_BYTES: Final = 128 * 1024
FILES_MAX: Final = 10_000
"""Files of the folder that are followed; the journal keeps as many places."""
MISSED_MAX: Final = 5
"""Looks in a row without a file, after which it is gone."""
READS_MAX: Final = 16
"""Of one file, before the next file's turn: one that grows for ever holds up no other."""
RECENT_NS: Final = 2_000_000_000
"""A file that was changed so lately may be changed again without its time of change saying so."""
OPEN_MAX: Final = 64
"""Files that stay open, those that grew last: so that one that is deleted is read to its end."""


class _File:
    """One file. `offset`: behind the last line that was handed on. `matches`: whether its name does."""

    def __init__(self, path: Path, file: FileId, *, matches: bool) -> None:
        self.path = path
        self.file = file
        self.matches = matches
        self.is_ours = matches
        """Whether it is to be read: it matched, or the journal knows it. Another may have got its inode."""
        self.looked: tuple[int, int] | None = None
        """Its size and the time of its change when there was nothing more in it; None where it is to be looked into."""
        self.told: os.stat_result | None = None
        """As it was before it was read last."""
        self.descriptor = -1
        self.offset = 0
        self.before = b""
        """The bytes before `offset`, as many as a mark needs."""
        self.names: list[str] | None = None
        self.bad: bytes | None = None
        """The mark of its header where that names no columns."""
        self.is_bad_told = False
        self.failed = False
        """The last look could not read it."""
        self.skips = False
        """In the middle of a line that is too long."""
        self.missed = 0
        """Looks in a row in which it was not there."""

    def begin_anew(self) -> None:
        """It is another one."""
        self.offset, self.before, self.names, self.skips = 0, b"", None, False

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Folder:
    """The files in `directory` whose names match `pattern`, and those that were read before, whatever their names."""

    def __init__(self, intake: Intake, directory: Path, pattern: str, line_bytes_max: int) -> None:
        self._intake = intake
        self._directory = directory
        self._pattern = pattern
        self._line_bytes_max = line_bytes_max
        self._files: dict[FileId, _File] = {}
        """In the order in which they are read: those that were read longest ago first."""
        self._open: dict[FileId, None] = {}
        intake.follow(self._files)
        if not directory.is_dir():
            raise ConfigError(f"{directory} is no directory; expected one for --folder")

    async def run(self, poll_s: float, *, once: bool) -> None:
        """Hands on the lines of all files, for ever; with `once` to the end that each has when all were read."""
        try:
            while True:
                if await self.look():
                    continue
                if once:
                    self._intake.invalid += sum(file.failed for file in self._files.values())
                    return
                await asyncio.sleep(poll_s)
        finally:
            self.close()

    async def look(self) -> bool:
        """Hands on lines that the files have by now; whether there were any, and may be more."""
        grew = await self._find()
        for file in [file for file in self._files.values() if not file.missed]:
            grew |= await self._take(file)
        return grew

    def close(self) -> None:
        """Closes all files."""
        for file in self._files.values():
            file.close()

    async def _take(self, file: _File) -> bool:
        """Hands on some of its lines; whether there were any."""
        first = file.offset
        for _ in range(READS_MAX):
            await self._intake.room()
            offset = file.offset
            self._intake.add(await in_thread(self._read, file))
            if file.bad is not None and not file.is_bad_told:
                file.is_bad_told = True
                self._intake.invalid += 1
            if file.offset == offset:
                break
        return file.offset != first

    async def _find(self) -> bool:
        """Which files there are; whether those that went had anything more."""
        found = await in_thread(lambda: list(self._entries()))
        present = {file: path for _, path, file in sorted(found)}
        for file, path in present.items():
            known, matches = self._files.get(file), self._matches(path.name)
            if known is not None:
                known.path, known.matches, known.missed = path, matches, 0
                if matches and not known.is_ours:
                    known.is_ours, known.looked = True, None
            elif len(self._files) < FILES_MAX:
                self._files[file] = _File(path, file, matches=matches)
            else:
                self._intake.complaints.tell(f"{path}: not read; the limit is {FILES_MAX} files")
        grew = False
        for file in [file for file in self._files if file not in present]:
            gone = self._files[file]
            gone.missed += 1
            more = gone.descriptor >= 0 and await self._take(gone)  # what was written before it went is still there
            grew |= more
            # A rename may hide a file from one look; and the journal is to know how far it was read.
            if gone.missed > MISSED_MAX and not more and self._intake.is_idle:
                self._close(gone)
                del self._files[file]
        return grew

    def _matches(self, name: str) -> bool:
        return not name.startswith(".") and fnmatch.fnmatch(name, self._pattern)

    # ------------------------------------------------------------------------------------- in a thread

    def _entries(self) -> Iterator[tuple[int, Path, FileId]]:
        """(time of the last change, path, file) of each that is to be read."""
        try:
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    try:
                        told = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # it went meanwhile
                    file = (told.st_dev, told.st_ino)
                    is_known = file in self._files or file in self._intake.places
                    if not stat.S_ISREG(told.st_mode):
                        continue
                    if is_known or self._matches(entry.name):
                        yield told.st_mtime_ns, Path(entry.path), file
        except OSError as error:
            self._intake.complaints.tell(f"{self._directory}: {error.strerror}; trying again")

    def _read(self, file: _File) -> list[Given]:
        """Its next lines; empty where there are none yet."""
        try:
            file.failed = False
            if not self._is_ready(file):
                return []
            data = os.pread(file.descriptor, READ_BYTES + self._line_bytes_max, file.offset)
        except OSError as error:
            self._intake.complaints.tell(f"{file.path}: {error.strerror}; trying again")
            file.failed = True
            self._close(file)
            return []
        given: list[Given] = []
        start, end = file.offset, 0
        for line, behind in Cutter(self._line_bytes_max).cut(data):
            end = behind
            if file.skips:
                line, file.skips = None, False
            if file.names is None and self._intake.form.has_header and (line is None or line.strip()):
                if not self._has_names(file, line):
                    self._leave(file)
                    return given
            elif line is None or line.strip():
                place = Place(*file.file, start + end, mark_of(self._before(file, data, end)))
                given.append(Given(str(file.path), line, file.names, place))
        if not end and len(data) > self._line_bytes_max:  # no line ends in all of it
            file.skips = True
            end = len(data)
        file.before = self._before(file, data, end)
        file.offset = start + end
        return given

    @staticmethod
    def _before(file: _File, data: bytes, end: int) -> bytes:
        """What is before the byte `end` of `data`, which was read from the file's offset on; as much as is marked."""
        if end >= MARK_OF_BYTES:
            return data[end - MARK_OF_BYTES : end]
        return (file.before + data[:end])[-MARK_OF_BYTES:]

    def _has_names(self, file: _File, line: bytes | None) -> bool:
        try:
            file.names = self._intake.form.names(line or b"")
        except ValueError as error:
            mark = mark_of(line or b"")
            if mark != file.bad:
                self._intake.complaints.tell(f"{file.path}: not read: {error}")
                file.bad, file.is_bad_told = mark, False
            return False
        file.bad = None
        return True

    def _is_ready(self, file: _File) -> bool:
        """Opens it if needed, and checks whether it continues after `offset`. OSError."""
        if file.descriptor < 0:
            told = file.path.lstat()
            if file.looked == (told.st_size, told.st_mtime_ns):
                return False
            if not self._opened(file):
                return False
        file.told = told = os.fstat(file.descriptor)
        if told.st_size < file.offset or self._bytes_before(file, file.offset) != file.before:
            file.begin_anew()
            if not file.matches:  # what was read before is gone, and another has its inode
                file.is_ours = False
                self._leave(file)
                return False
            self._intake.complaints.tell(f"{file.path}: it was rewritten; read again from its beginning")
        if told.st_size <= file.offset:
            if file.file not in self._open:
                self._leave(file)
            return False
        self._open.pop(file.file, None)
        self._open[file.file] = None
        if len(self._open) > OPEN_MAX:
            self._close(self._files[next(iter(self._open))])
        return True

    def _opened(self, file: _File) -> bool:
        """At the place where it was read to."""
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        file.told = told = os.fstat(descriptor)
        if (told.st_dev, told.st_ino) != file.file or not stat.S_ISREG(told.st_mode):
            os.close(descriptor)
            return False  # another has its name now, which the next look tells
        file.descriptor = descriptor
        if not file.offset:
            place = self._intake.places.get(file.file)
            if place is not None and place.offset <= told.st_size:
                before = self._bytes_before(file, place.offset)
                if mark_of(before) == place.mark:
                    file.offset, file.before, file.is_ours = place.offset, before, True
        if not file.is_ours or (file.offset and not self._has_header(file)):
            self._leave(file)
            return False
        return True

    def _has_header(self, file: _File) -> bool:
        """Whether what was read of a file has named its columns, where they are needed: its first line that is not
        empty. True where that is still to come."""
        if not self._intake.form.has_header or file.names is not None:
            return True
        start = 0
        while start < file.offset:
            cuts = Cutter(self._line_bytes_max).cut(os.pread(file.descriptor, READ_BYTES + self._line_bytes_max, start))
            for line, end in cuts:
                if start + end <= file.offset and (line is None or line.strip()):
                    return self._has_names(file, line)
            if not cuts:
                break
            start += cuts[-1].end
        return True

    def _leave(self, file: _File) -> None:
        """There is nothing to read in it, as long as it is what it was before it was read last."""
        self._close(file)
        told = file.told
        is_recent = told is None or abs(time.time_ns() - told.st_mtime_ns) < RECENT_NS
        file.looked = None if told is None or is_recent else (told.st_size, told.st_mtime_ns)

    @staticmethod
    def _bytes_before(file: _File, offset: int) -> bytes:
        start = max(0, offset - MARK_OF_BYTES)
        return os.pread(file.descriptor, offset - start, start)

    def _close(self, file: _File) -> None:
        self._open.pop(file.file, None)
        file.close()
