"""What a command says of an error that ended it (running.py, receiving.py)."""

import argparse

import pytest

from holdfast.amqp.wire.conditions import MESSAGE_SIZE_EXCEEDED, NOT_IMPLEMENTED
from holdfast.client.errors import LinkError
from holdfast.client.verbs import receiving, running


def test_a_sender_is_not_told_to_receive(capsys: pytest.CaptureFixture[str]) -> None:
    running.complain(argparse.Namespace(verb="send", address="q"), LinkError("too large", MESSAGE_SIZE_EXCEEDED))
    assert capsys.readouterr().err == "holdfast send: too large\n"


@pytest.mark.parametrize(
    ("address", "condition", "browse", "sequence", "advice"),
    [
        ("q", MESSAGE_SIZE_EXCEEDED, False, None, "; `holdfast receive q --to DIRECTORY` takes messages of any size"),
        ("topic/t", NOT_IMPLEMENTED, True, None, "; leave out --browse"),
        ("topic/t", NOT_IMPLEMENTED, False, 7, "; leave out --from-sequence"),
        ("topic/t", NOT_IMPLEMENTED, False, None, ""),
        ("q", NOT_IMPLEMENTED, True, None, ""),  # such as a peer that applies no selector
        ("q", None, True, None, ""),
    ],
)
def test_a_receiver_is_told_what_it_can_change(
    address: str, condition: str | None, browse: bool, sequence: int | None, advice: str
) -> None:
    args = argparse.Namespace(address=address, browse=browse, from_sequence=sequence)
    assert receiving.advice_for(args, LinkError("no", condition)) == advice
