"""Qpid Proton's transactions against a node (CLIENTS 38; AMQP 1.0 part 4)."""

from collections.abc import Callable
from typing import Any

import pytest

proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")

from proton import Delivery, Event, Message  # noqa: E402
from proton.handlers import MessagingHandler, TransactionHandler  # noqa: E402
from proton.reactor import Container, Transaction  # noqa: E402

from interop.proton_peer import LIMIT_S, Client  # noqa: E402
from support.process import NodeProcess  # noqa: E402

pytestmark = pytest.mark.interop

Step = Callable[["Program"], None]


class Program(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """A program that declares a transaction, does its `work` once it has as many messages as it wants, and ends with
    what Proton calls it back for. It takes from `source` and sends to `target`."""

    def __init__(self, url: str, source: str, target: str, work: Step, *, wants: int, settles: bool) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url, self.source, self.target, self.work, self.wants, self.settles = (
            url, source, target, work, wants, settles,
        )  # fmt: skip
        self.taken: list[tuple[Any, Delivery]] = []
        self.told: list[str] = []
        self.transaction: Transaction | None = None
        self.worked = False

    def on_start(self, event: Event) -> None:
        self.container = event.container
        self.connection = self.container.connect(self.url, reconnect=False)
        self.sender = self.container.create_sender(self.connection, self.target)
        self.receiver = self.container.create_receiver(self.connection, self.source)
        self.receiver.flow(self.wants)
        self.container.declare_transaction(self.connection, handler=self, settle_before_discharge=self.settles)
        self.timer = self.container.schedule(LIMIT_S, self)

    def on_timer_task(self, event: Event) -> None:
        self.told.append("late")
        self.end()

    def on_transaction_declared(self, event: Event) -> None:
        self.transaction = event.transaction
        self._go_on()

    def on_message(self, event: Event) -> None:
        self.taken.append((event.message.body, event.delivery))
        self._go_on()

    def on_sendable(self, event: Event) -> None:
        self._go_on()

    def _go_on(self) -> None:
        if not self.worked and self.transaction and len(self.taken) >= self.wants and self.sender.credit:
            self.worked = True
            self.work(self)

    def on_accepted(self, event: Event) -> None:
        self.told.append("accepted")

    def on_rejected(self, event: Event) -> None:
        self.told.append(f"rejected {event.delivery.remote.condition.name}")

    def on_transaction_committed(self, event: Event) -> None:
        self.told.append("committed")
        self.end()

    def on_transaction_aborted(self, event: Event) -> None:
        self.told.append("aborted")
        self.end()

    def on_transaction_commit_failed(self, event: Event) -> None:
        self.told.append(f"failed {event.delivery.remote.condition.name}")
        self.end()

    def end(self) -> None:
        self.timer.cancel()
        self.connection.close()

    def run(self) -> list[str]:
        Container(self).run()
        return self.told


def ran(hub: NodeProcess, address: str, work: Step, *, wants: int = 2, settles: bool = False) -> Program:
    program = Program(hub.url, address, f"{address}-out", work, wants=wants, settles=settles)
    program.run()
    return program


def move(program: Program) -> None:
    """Sends on all that it has."""
    assert program.transaction is not None
    for body, delivery in program.taken:
        program.transaction.send(program.sender, Message(body=body))
        program.transaction.accept(delivery)


def commit(program: Program) -> None:
    move(program)
    program.transaction.commit()  # type: ignore[union-attr]


def abort(program: Program) -> None:
    move(program)
    program.transaction.abort()  # type: ignore[union-attr]


def bodies(client: Client, address: str) -> list[Any]:
    receiver = client.receiver(address)
    found = [arrival.body for arrival in receiver.drain()]
    receiver.close()
    return found


@pytest.mark.parametrize("settles", [True, False])
def test_commit(hub: NodeProcess, client: Client, address: str, settles: bool) -> None:
    client.send_bodies(address, "one", "two", "three")
    program = ran(hub, address, commit, settles=settles)
    assert program.told[-1] == "committed" and "late" not in program.told
    client.await_depth(address, 1)
    assert bodies(client, f"{address}-out") == ["one", "two"]
    assert bodies(client, address) == ["three"]


@pytest.mark.parametrize("settles", [True, False])
def test_abort(hub: NodeProcess, client: Client, address: str, settles: bool) -> None:
    client.send_bodies(address, "one", "two", "three")
    program = ran(hub, address, abort, settles=settles)
    assert program.told[-1] == "aborted"
    assert sorted(bodies(client, address)) == ["one", "three", "two"]
    assert bodies(client, f"{address}-out") == []


def test_an_unknown_id_is_told(hub: NodeProcess, client: Client, address: str) -> None:
    client.send_bodies(address, "one", "two")

    def forge(program: Program) -> None:
        assert program.transaction is not None
        program.transaction.id = b"nobody's"
        program.transaction.commit()

    assert ran(hub, address, forge).told == ["failed amqp:transaction:unknown-id"]
    assert bodies(client, address) == ["one", "two"]


def test_a_connection_that_ends_before_the_discharge(hub: NodeProcess, client: Client, address: str) -> None:
    client.send_bodies(address, "one", "two")

    def leave(program: Program) -> None:
        move(program)
        program.end()

    ran(hub, address, leave)
    assert sorted(bodies(client, address)) == ["one", "two"]
    assert bodies(client, f"{address}-out") == []
