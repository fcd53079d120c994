"""The most that any control could carry: how many messages the burst may have before something must overflow.

Rules of this file: a schedule that knows all arrivals beforehand, against which policies are measured. A message must
leave its client before the message that comes `CLIENT_MESSAGES` later arrives; the earliest such deadline first is
optimal. Source: docs/results/traffic-control.md, "The limit".
"""

from heapq import heapify, heappop, heappush

from holdfast_lab.vpn.arriving import times
from holdfast_lab.vpn.model import BLOCK_S
from holdfast_lab.vpn.parameters import CLIENT_MESSAGES, Experiment


class _Queue:
    """A client's arrivals, with those to come; `sent` left it, `came` arrived."""

    def __init__(self, experiment: Experiment, number: int) -> None:
        self.number = number
        self._source = times(experiment, number)
        self.times: list[float] = []
        self.sent = 0
        self.came = 0

    def at(self, index: int) -> float:
        """When the message with this number arrives."""
        while len(self.times) <= index:
            self.times.append(next(self._source))
        return self.times[index]

    def deadline(self) -> float:
        """When the queue's first message must have left."""
        return self.at(self.sent + CLIENT_MESSAGES)


def limit(experiment: Experiment, *, whole: bool) -> int:
    """Messages that the clients that burst generate in it, up to the first overflow under the best schedule; all of
    them where there is none in the experiment's span.

    `whole` False: the clients together send `experiment.rate` a second, one message after the other, without the root's
    space. True: its space is used, too: it is kept just busy, and beyond that takes what would overflow elsewhere.
    """
    queues = [_Queue(experiment, number) for number in range(experiment.clients)]
    overflow_at = _whole(experiment, queues) if whole else _rate_alone(experiment, queues)
    begins, ends = experiment.burst_s
    count = 0
    for queue in queues:
        if experiment.bursts(queue.number):
            index = 0
            while (at := queue.at(index)) <= min(overflow_at, ends):
                count += at >= begins
                index += 1
    return count


def _rate_alone(experiment: Experiment, queues: list[_Queue]) -> float:
    """The first missed deadline where one message leaves at a time."""
    step_s = 1 / experiment.rate
    coming = [(queue.at(0), queue.number) for queue in queues]
    heapify(coming)
    waiting: list[tuple[float, int]] = []
    """(deadline of the first message, client) of those that have one; a heap."""
    free_at = 0.0
    while True:
        if waiting:
            now = free_at
        elif coming[0][0] > experiment.span_s:
            return experiment.span_s
        else:
            now = max(free_at, coming[0][0])
        while coming[0][0] <= now:
            _, number = heappop(coming)
            queue = queues[number]
            queue.came += 1
            heappush(coming, (queue.at(queue.came), number))
            if queue.came - queue.sent == 1:
                heappush(waiting, (queue.deadline(), number))
        deadline, number = heappop(waiting)
        if deadline < now:
            return deadline
        queue = queues[number]
        queue.sent += 1
        if queue.came > queue.sent:
            heappush(waiting, (queue.deadline(), number))
        free_at = now + step_s


def _whole(experiment: Experiment, queues: list[_Queue]) -> float:
    """The first message that finds its client's queue and the root's full. The root is emptied in blocks."""
    block = round(experiment.rate * BLOCK_S)
    coming = [(queue.at(0), queue.number) for queue in queues]
    heapify(coming)
    root, block_at = 0, BLOCK_S
    while coming[0][0] <= experiment.span_s:
        now, number = coming[0]
        while block_at <= now:
            if root < block:  # just busy: what goes to the root now leaves it at once
                root += _send_most_urgent(queues, block - root)
            root = max(0, root - block)
            block_at += BLOCK_S
        heappop(coming)
        queue = queues[number]
        if queue.came - queue.sent >= CLIENT_MESSAGES:
            if root >= experiment.root_messages:
                return now
            queue.sent += 1
            root += 1
        queue.came += 1
        heappush(coming, (queue.at(queue.came), number))
    return experiment.span_s


def _send_most_urgent(queues: list[_Queue], most: int) -> int:
    """Up to `most` messages leave, the earliest deadline first; how many."""
    waiting = [(queue.deadline(), queue.number) for queue in queues if queue.came > queue.sent]
    heapify(waiting)
    count = 0
    while waiting and count < most:
        _, number = heappop(waiting)
        queue = queues[number]
        queue.sent += 1
        count += 1
        if queue.came > queue.sent:
            heappush(waiting, (queue.deadline(), number))
    return count
