"""One node in memory with drawn limits, an honest client and hostile ones, up to three at a time.

Rules of this file: everything follows from the seed and the batch's number. Bytes that one read brings are a turn of
their own; a commit comes back some turns later, and now and then finds no space. A node that dies starts anew on its
store.
"""

import re
import struct
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from fuzz.findings import Finding, Report
from fuzz.limits import draw_limits, draw_queues
from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.composites import decode_composite
from holdfast.amqp.wire.frames import AMQP_HEADER, EMPTY_FRAME, frame
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Disposition,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast.errors import BrokenInvariant, StorageFull
from holdfast.links.disk import RETRY_S
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.storage.memory import MemoryStore
from holdfast_lab.hostile import ACTS, HostileClient, Places
from support.memory import check_accounts

ACTS_MAX = (5, 25, 25, 150)
READ_BYTES = 65_536
ROUNDS_MAX = 200
"""Steps within which an honest message must be stored and back."""
CONCURRENT = 3
KILL_SHARE = 0.000_5
"""Of all steps, those that find the node killed: it starts again on what hostile clients left in its store."""
DEEP_SHARE, DEEP = 0.1, 20_000
"""Of the batches, those in which a hostile queue holds so many messages from the start."""
TURNS_A_CHECK = 10
"""As often it is looked at whether the accounts of memory are right."""
IDLE_ACCOUNTS = ("unstored", "parked", "requests")
"""What is counted only while somebody waits."""
LINK_OR_NUMBER = re.compile(r"^\S+@\S+: |'x\d[^']*'|\d+")
"""What differs from one hit of a defect to the next."""
ENTRIES_MAX = 500
"""Entries that one look at the invariants reads."""
FULL = "the disk is full"
"""The one ERROR that has a reason here."""
WALL_MS = 1_700_000_000_000
PLACES = Places(own=("h0", "h1", "h2"), nodes=("hub", "ewr"))


class Dead(Exception):
    """The node has ended."""


class Killed(Dead):
    """By us, as kill -9 does: nothing is found."""


class Honest:
    """A client by hand that sends to its own queue and takes back what it sent, one message at a time."""

    def __init__(self, life: int) -> None:
        self.body = b"%06d" % life
        """What an earlier life left in the queue is no message of this one's."""
        self.unread = b""
        self.sent = self.accepted = self.received = 0
        self.credit = 0

    def opening(self) -> bytes:
        return AMQP_HEADER + self._frames(
            Open("honest"), Begin(None, 0, 2**31 - 1, 2**31 - 1),
            Attach("to", 0, False, source=Source(), target=Target("honest"), initial_delivery_count=0),
            Attach("from", 1, True, source=Source("honest"), target=Target("here")),
            Flow(0, 2**31 - 1, 0, 2**31 - 1, 1, 0, 1_000_000),
        )  # fmt: skip

    def send(self) -> bytes:
        number = self.sent
        self.sent += 1
        body = encoding.encode(Transfer(0, number, struct.pack(">I", number))) + b"\x00\x53\x75\xa0\x06" + self.body
        return frame(0, body)

    @property
    def done(self) -> bool:
        return self.sent == self.accepted == self.received

    def hear(self, data: bytes) -> bytes:
        """What it answers."""
        self.unread += data
        answer = b""
        while len(self.unread) >= 8:
            size = 8 if self.unread[:4] == b"AMQP" else int.from_bytes(self.unread[:4], "big")
            if len(self.unread) < size:
                break
            whole, self.unread = self.unread[:size], self.unread[size:]
            if size == 8:
                continue
            said = decode_composite(whole, 8)[0]
            if isinstance(said, Disposition) and said.role:
                assert isinstance(said.state, Accepted), f"an honest message was answered {said.state!r}"
                self.accepted = (said.first if said.last is None else said.last) + 1
            elif isinstance(said, Flow) and said.handle == 0:
                self.credit = (said.delivery_count or 0) + (said.link_credit or 0) - self.sent
            elif isinstance(said, Transfer):
                self.received += whole.endswith(self.body)
                answer += self._frames(Disposition(True, said.delivery_id or 0, None, True, Accepted()))
        return answer

    @staticmethod
    def _frames(*values: Any) -> bytes:
        return b"".join(frame(0, encoding.encode(value)) for value in values)


class World:
    """One node, its store, its honest client and the hostile ones."""

    def __init__(self, seed: int, batch: int, report: Report, *, tell: Callable[[str], None] | None = None) -> None:
        self.random = Random(f"{seed}/{batch}")
        self.replay = f"python tests/fuzz/in_process.py --seed {seed} --batch {batch}"
        self.report = report
        self.tell = tell
        self.limits = draw_limits(self.random)
        self.config = NodeConfig(
            name="hub",
            neighbours=(NeighbourConfig(name="ewr"),),
            queues=draw_queues(self.random, PLACES.own),
            limits=self.limits,
            create_queues=self.random.random() < 0.7,
            unknown_destination=self.random.choice(("refuse", "keep", "dead-letter")),
        )
        self.config.validate()
        self.store = MemoryStore(mint_from=self._uuid)
        self.now = 1_000.0
        self.core: NodeCore | None = None
        self.number = 0
        self.turns = 0
        self.refusing = 0.0
        self.pending: events.Commit | None = None
        self.outputs: dict[int, bytes] = {}
        self.paused: set[int] = set()
        self.said: list[str] = []
        self.closed: list[int] = []
        self.start()

    def _uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def start(self) -> None:
        """A new life on the same store."""
        self.core = NodeCore(self.config, self.store, rng=Random(self.random.random()), wall_ms=WALL_MS, now=self.now)
        self.pending = None
        self.outputs.clear()
        self.paused.clear()
        self.honest = Honest(self.number)
        self.honest_number = self.connect()
        self.feed(self.honest_number, self.honest.opening())

    # ------------------------------------------------------------------------------------------------ the driver

    def connect(self) -> int:
        self.number += 1
        self.outputs[self.number] = b""
        self.turn([events.ConnectionOpened(connection=self.number, peer="10.0.0.1:1", loopback=True)])
        return self.number

    def feed(self, number: int, data: bytes, step: int = READ_BYTES) -> None:
        """Bytes that a connection brings, each read a turn of its own."""
        for at in range(0, len(data), step):
            for _ in range(20):  # as a kernel's buffer: it is read when the node reads again
                if number not in self.paused:
                    break
                self.idle()
            if number not in self.outputs:
                return
            self.turn([events.BytesReceived(connection=number, data=data[at : at + step])])

    def idle(self) -> None:
        """A moment without any news but what is due."""
        self.turn([])

    def turn(self, happened: list[events.Event]) -> None:
        self.now += 0.000_5
        if self.pending is not None and self.random.random() < 0.7:
            happened = [self._committed(), *happened]
        assert self.core is not None
        deadline = self.core.next_deadline()
        if deadline is not None and deadline <= self.now:
            happened.append(events.TimerFired())
        happened.append(events.TurnEnded(wall_ms=WALL_MS + int(self.now * 1_000)))
        took = 0.0
        for event in happened:
            began = time.thread_time()
            try:
                commands = self.core.handle(event, self.now)
            except Exception as error:
                self._died(error)
            took += time.thread_time() - began
            for command in commands:
                self._do(command)
        self.report.timed(took, f"{self.said[-1] if self.said else 'at its start'}; {self.replay}")
        self.turns += 1
        if self.turns % TURNS_A_CHECK == 0:
            try:
                check_accounts(self.core)
            except AssertionError as error:
                self._find(f"memory is counted wrongly: {re.sub(r'[0-9]+', '…', str(error))[:150]}", str(error))

    def _committed(self) -> events.Event:
        commit, self.pending = self.pending, None
        assert commit is not None
        try:
            if commit.batch.appends and self.random.random() < self.refusing:
                raise StorageFull("told to refuse")
            self.store.commit(commit.batch)
        except StorageFull:
            return events.CommitRefused(number=commit.number, room_bytes=0)
        return events.Committed(number=commit.number, room_bytes=self.store.room_bytes())

    def _do(self, command: events.Command) -> None:
        if isinstance(command, events.SendBytes):
            if command.connection in self.outputs:
                self.outputs[command.connection] += b"".join(command.chunks)
        elif isinstance(command, events.CloseConnection):
            self.outputs.pop(command.connection, None)
            self.paused.discard(command.connection)
            self.closed.append(command.connection)
        elif isinstance(command, events.Commit):
            assert self.pending is None, "one commit at a time"
            self.pending = command
        elif isinstance(command, events.PauseReading):
            self.paused.add(command.connection)
        elif isinstance(command, events.ResumeReading):
            self.paused.discard(command.connection)
        elif isinstance(command, events.Log):
            if command.level == "ERROR" and FULL not in command.text:
                self._find("logged: " + LINK_OR_NUMBER.sub("…", command.text[:150]))
        elif isinstance(command, events.Stopped):
            self._find("the node stopped")
            raise Dead

    def _died(self, error: Exception) -> None:
        frames = [item for item in traceback.extract_tb(error.__traceback__) if "/holdfast/" in item.filename]
        where = " < ".join(f"{Path(item.filename).stem}.{item.name}:{item.lineno}" for item in frames[:-4:-1])
        text = LINK_OR_NUMBER.sub("…", str(error))[:60]
        self._find(f"{type(error).__name__}: {text} at {where}", traceback.format_exc())
        raise Dead from error

    def _find(self, signature: str, trace: str = "") -> None:
        self.report.found(Finding(signature, self.replay, self.said[-12:], trace))
        if self.tell is not None:
            self.tell(f"FOUND {signature}\n{trace}")

    # ------------------------------------------------------------------------------------------------ a batch

    def run(self, streams: int) -> None:
        if self.random.random() < DEEP_SHARE:
            self._fill(PLACES.own[0], DEEP)
        live: dict[int, tuple[HostileClient, int, int]] = {}
        begun = 0
        while begun < streams or live:
            try:
                if begun < streams and len(live) < CONCURRENT:
                    begun += 1
                    self.report.streams += 1
                    client = HostileClient(self.random, PLACES, name=f"x{begun}", acts=ACTS, rude_share=self._rude())
                    number = self.connect()
                    step = self.random.choice((READ_BYTES, READ_BYTES, 1_000, 17))
                    live[number] = client, self.random.randint(1, self.random.choice(ACTS_MAX)), step
                    self._say(begun, number, "opening", client.opening(), step)
                elif self.random.random() < KILL_SHARE:
                    raise Killed
                else:
                    self._go_on(live)
                self._settle_honest()
            except Dead as death:
                self.report.deaths += not isinstance(death, Killed)
                for client, _, _ in live.values():
                    self.report.acts.update(client.said)
                live.clear()
                self._restart()
        self._rest()

    def _fill(self, queue: str, count: int) -> None:
        """Puts messages into a queue, as many as its bounds let in."""
        number = self.connect()
        client = HostileClient(self.random, PLACES, name="filler", acts=ACTS)
        link, attach = client.attach(False, target=Target(queue), initial_delivery_count=0)
        begin = client.begin(0, next_outgoing_id=0, incoming_window=5_000)
        client.session().links[link.handle] = link
        self.feed(number, AMQP_HEADER + client.frames(Open("filler")) + begin + attach)
        left = count
        for _ in range(count // 10):
            if not left or number not in self.outputs:
                break
            heard, self.outputs[number] = self.outputs[number], b""
            client.hear(heard)
            some = min(left, link.credit, 500)
            left -= max(0, some)
            self.feed(
                number, b"".join(client.transfer(link, b"\x00\x53\x75\xa0\x01x") for _ in range(some)) or EMPTY_FRAME
            )
        if self.outputs.pop(number, None) is not None:
            self.turn([events.ConnectionLost(connection=number, reason="it left")])

    def _rude(self) -> float:
        return self.random.choice((0.0, 0.05, 0.3))

    def _say(self, stream: int | str, number: int, name: str, data: bytes, step: int) -> None:
        self.said.append(f"{stream}: {name}, {len(data)} bytes")
        if self.tell is not None:
            self.tell(self.said[-1])
        self.feed(number, data, step)

    def _go_on(self, live: dict[int, tuple[HostileClient, int, int]]) -> None:
        self.refusing = self.random.choice((0.0, 0.0, 0.0, 0.0, 0.5))
        number = self.random.choice(list(live))
        client, left, step = live[number]
        if number in self.outputs:
            heard, self.outputs[number] = self.outputs[number], b""
            if self.random.random() < 0.9:  # else it does not read
                client.hear(heard)
        if number not in self.outputs or client.over or left == 0:
            del live[number]
            self.report.acts.update(client.said)
            if number in self.outputs:
                self.outputs.pop(number)
                self.paused.discard(number)
                self.turn([events.ConnectionLost(connection=number, reason="it left")])
            self._validate()
            return
        live[number] = client, left - 1, step
        self._say(client.name, number, *client.act(), step if self.random.random() < 0.3 else READ_BYTES)
        if self.random.random() < 0.01:
            self.now += self.random.choice((0.1, 3.0, 20.0))

    def _settle_honest(self) -> None:
        """One message of the honest client goes round."""
        self.refusing = 0.0
        assert self.core is not None
        while self.pending is not None or self.core.disk.rests:
            # What was under way may be refused, not what the honest client sends now: a refused disk's rest is over.
            if self.pending is None:
                self.now += RETRY_S
            self.idle()
        sent = False
        for _ in range(ROUNDS_MAX):
            data = self.outputs.get(self.honest_number)
            if data is None:
                self._find("the honest client was cut off")
                raise Dead
            self.outputs[self.honest_number] = b""
            try:
                answer = self.honest.hear(data)
            except AssertionError as error:
                self._find(str(error))
                raise Dead from error
            if not sent and self.honest.credit > 0:
                answer += self.honest.send()
                sent = True
            if sent and self.honest.done and not answer:
                self.feed(self.honest_number, EMPTY_FRAME)
                return
            if answer:
                self.feed(self.honest_number, answer)
            else:
                self.idle()
        self._find(f"an honest message was not back within {ROUNDS_MAX} turns, credit {self.honest.credit}")
        raise Dead

    def _restart(self) -> None:
        try:
            self.start()
        except Dead:
            self._find("the node does not start again on its store")
            self.store = MemoryStore(mint_from=self._uuid)
            self.start()

    def _rest(self) -> None:
        """When all hostile ones have gone, nothing of theirs is left but what they may leave."""
        for _ in range(20):
            self.now += 0.1
            try:
                self.idle()
            except Dead:
                self._restart()
        assert self.core is not None
        left = [number for number in self.core.connections if number != self.honest_number]
        if left:
            self._find(f"{len(left)} connections are left of those that went")
        self._account(self.core)

    def _validate(self) -> None:
        """All invariants of the node hold."""
        assert self.core is not None
        try:
            self.core.validate(entries_max=ENTRIES_MAX)
        except BrokenInvariant as error:
            self._died(error)

    def _account(self, core: NodeCore) -> None:
        """Memory that is still counted for who has gone is lost for good."""
        memory = core.memory
        if memory.total.held != sum(account.held for account in memory.accounts):
            self._find("the accounts of memory do not sum to the total's")
        for account in memory.accounts:
            if account.held < 0 or (account.name in IDLE_ACCOUNTS and account.held):
                self._find(f"the account {account.name} is {'below' if account.held < 0 else 'above'} 0 at rest")
        peer = core.connections.get(self.honest_number)
        if peer is not None and memory.connections.held != peer.held_bytes:
            self._find("the account of connections counts some that went")
