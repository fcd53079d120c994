"""Hosts that nobody can be asked for."""

import pytest

from holdfast.names import host_problem


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "a.b.example.", "127.0.0.1", "256.1.1.1", "::1", "::ffff:1.2.3.4", "fe80::1%eth0", "münchen.de",
        "x" * 63, "*",
    ],
)  # fmt: skip
def test_what_can_be_asked_for_has_no_problem(host: str) -> None:
    assert host_problem(host) is None


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("a\0b", "a space or a character that is not printed"),
        ("a b", "a space or a character that is not printed"),
        ("", "an empty label"),
        (".", "an empty label"),
        ("a..b", "an empty label"),
        ("1..2", "an empty label"),
        ("ü..x", "an empty label"),
        ("a。。b", "an empty label"),
        ("x" * 64, "a label above 63 characters"),
        ("a." + "x" * 64 + ".b", "a label above 63 characters"),
        ("ü" * 63, "a label above 63 characters"),
        ("fe80::1%" + "x" * 63, "a label above 63 characters"),
        ("\udc80", "a space or a character that is not printed"),
    ],
)
def test_what_idna_or_a_socket_refuses_is_told(host: str, problem: str) -> None:
    assert host_problem(host) == problem
