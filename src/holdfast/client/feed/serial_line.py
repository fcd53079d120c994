"""Lines of a serial line, through the terminal interface of the system (termios).

Rules of this file: it reads and never writes. While the journal takes nothing it does not read: the system holds a few
KiB, and a device without flow control loses what it sends beyond. A device that is unplugged is opened again.
"""

import asyncio
import os
import termios
from typing import Final

from holdfast.client.feed.cutting import Cutter
from holdfast.client.feed.intake import Given, Intake
from holdfast.errors import ConfigError

READ_BYTES: Final = 4_096
OPEN_AGAIN_S: Final = 1.0
BAUDS: Final = {
    int(name[1:]): value for name, value in vars(termios).items() if name[0] == "B" and name[1:].isdigit() and value
}
"""Speeds that the system knows."""


def open_line(device: str, baud: int) -> int:
    """The descriptor of `device`, set to raw bytes, 8 data bits, no parity, one stop bit. OSError, termios.error."""
    descriptor = os.open(device, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        settings = termios.tcgetattr(descriptor)
        settings[0] = termios.IGNBRK | termios.IGNPAR
        settings[1] = 0
        settings[2] = termios.CS8 | termios.CREAD | termios.CLOCAL
        settings[3] = 0
        settings[4] = settings[5] = BAUDS[baud]
        settings[6][termios.VMIN], settings[6][termios.VTIME] = 0, 0
        termios.tcsetattr(descriptor, termios.TCSANOW, settings)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check(device: str, baud: int) -> None:
    """ConfigError where it is no serial line that can be read."""
    if baud not in BAUDS:
        raise ConfigError(f"invalid value {baud} for --baud; expected one of {', '.join(map(str, sorted(BAUDS)))}")
    try:
        os.close(open_line(device, baud))
    except (OSError, termios.error) as error:
        reason = os.strerror(error.args[0])
        raise ConfigError(f"{device} cannot be opened ({reason}); expected a serial line for --serial") from None


async def take(intake: Intake, device: str, baud: int, line_bytes_max: int) -> None:
    """Hands on its lines, for ever."""
    told = False
    while True:
        try:
            descriptor = open_line(device, baud)
        except (OSError, termios.error) as error:
            if not told:
                intake.complaints.tell(f"{device}: {os.strerror(error.args[0])}; trying again")
            told = True
        else:
            told = False
            try:
                await _read(intake, device, descriptor, line_bytes_max)
            except OSError as error:
                intake.complaints.tell(f"{device}: {error.strerror}; trying again")
            finally:
                os.close(descriptor)
        await asyncio.sleep(OPEN_AGAIN_S)


async def _read(intake: Intake, device: str, descriptor: int, line_bytes_max: int) -> None:
    """Until the device is gone."""
    cutter = Cutter(line_bytes_max)
    while True:
        await intake.room()
        await _readable(descriptor)
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            continue
        if not data:
            return
        intake.add([Given(device, line) for line, _ in cutter.cut(data)])


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(descriptor, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
