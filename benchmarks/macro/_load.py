"""The raw load: senders or receivers, a process of their own, on plain sockets, as fast as the broker takes them.

`python _load.py ROLE`, send or receive, takes one line of JSON first, {"protocol": "amqp", "native" or "stomp",
"sides": [Side's fields]}: one connection for each side. Attaches, prints `{"attached": true}`, then takes one JSON
object a line on standard input and answers each with one line: `{"messages": N, "rate": R or null}` sends (or awaits) N
messages over all its connections. End of input closes them and ends the process. Between two phases it answers the
peer's frames and keeps the connections alive.
"""

import json
import resource
import select
import sys
import time
from collections.abc import Sequence

from _amqp import AmqpReceiver, AmqpSender
from _connection import CONNECTIONS_MAX, ReceivingWire, SendingWire, Side, Wire, receive_phase, send_phase
from _wire import WireError


def connect_sender(protocol: str, side: Side) -> SendingWire:
    if protocol == "native":
        from _native import NativeSender

        return NativeSender(side)
    if protocol == "stomp":
        from _stomp import StompSender

        return StompSender(side)
    return AmqpSender(side)


def connect_receiver(protocol: str, side: Side) -> ReceivingWire:
    if protocol == "native":
        from _native import NativeReceiver

        return NativeReceiver(side)
    if protocol == "stomp":
        from _stomp import StompReceiver

        return StompReceiver(side)
    return AmqpReceiver(side)


def idle_until_input(wires: Sequence[Wire]) -> None:
    """Serve the connections until standard input has a line."""
    least = min((one.keepalive_s for one in wires if one.keepalive_s is not None), default=None)
    while True:
        now = time.monotonic()
        for one in wires:
            one.keep_alive(now)
        readable, _, _ = select.select([*wires, sys.stdin], [], [], least)
        for one in readable:
            if isinstance(one, Wire):
                one.take()
        if sys.stdin in readable:
            return


def main(role: str) -> int:
    told = json.loads(sys.stdin.readline())
    sides = [Side(**fields) for fields in told["sides"]]
    if len(sides) > CONNECTIONS_MAX:
        raise WireError(f"{len(sides)} connections: at most {CONNECTIONS_MAX} in one process")
    senders: list[SendingWire] = []
    receivers: list[ReceivingWire] = []
    for side in sides:
        if role == "send":
            senders.append(connect_sender(told["protocol"], side))
        else:
            receivers.append(connect_receiver(told["protocol"], side))
    wires: list[Wire] = [*senders, *receivers]
    ordered = 0
    print(json.dumps({"attached": True}), flush=True)
    while True:
        idle_until_input(wires)
        line = sys.stdin.readline()
        if not line.strip():
            break
        order = json.loads(line)
        ordered += order["messages"]
        before, read_before = resource.getrusage(resource.RUSAGE_SELF), sum(one.read_bytes for one in wires)
        if senders:
            result = send_phase(senders, order["messages"], order.get("rate"))
        else:
            result = receive_phase(receivers, order["messages"], ordered)
        after = resource.getrusage(resource.RUSAGE_SELF)
        result["cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        result["read_bytes"] = sum(one.read_bytes for one in wires) - read_before
        print(json.dumps(result), flush=True)
    for one in wires:
        one.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except (WireError, OSError, ValueError) as failure:
        print(f"raw load {sys.argv[1]}: {failure}", file=sys.stderr)
        sys.exit(1)
