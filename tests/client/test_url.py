"""URLs: what is accepted, and that a password is never shown."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.network.url import Url, parse_url
from holdfast.errors import ConfigError
from holdfast.names import host_problem


@pytest.mark.parametrize(
    ("text", "host", "port", "tls", "user", "password"),
    [
        ("amqp://host", "host", 5672, False, None, None),
        ("amqps://host", "host", 5671, True, None, None),
        ("amqp://host:1/", "host", 1, False, None, None),
        ("amqp://[::1]:5673", "::1", 5673, False, None, None),
        ("amqp://a%40b:p%3Aw%2F@host", "host", 5672, False, "a@b", "p:w/"),
        ("amqp://user@host", "host", 5672, False, "user", None),
        ("amqp://user:@host", "host", 5672, False, "user", ""),
        ("amqp://[fe80::1%25eth0]", "fe80::1%eth0", 5672, False, None, None),
        ("amqp://münchen.de.", "münchen.de.", 5672, False, None, None),
    ],
)
def test_accepted(text: str, host: str, port: int, tls: bool, user: str | None, password: str | None) -> None:
    url = parse_url(text)
    assert (url.host, url.port, url.tls, url.user, url.password) == (host, port, tls, user, password)


@pytest.mark.parametrize(
    "text",
    [
        "", "host", "http://host", "amqp://", "amqp://host:0", "amqp://host:", "amqps://u:p@[::1]:/",
        "amqp://host:99999", "amqp://host:x", "amqp://host/a/b", "amqp://host/a%00b", "amqp://host/a#b",
        "amqp://host?x=1", "amqp://:secret@host", "amqp://a%00:b@host", "amqp://[::1:5672",
        "amqp://u:secret", "amqp://u:secret/a", "amqp://u:1secret", "amqp://u:1#secret", "amqp://u:1?secret",
        "u:secret", "u:secret@host", "http://u:secret", "amqps://[::1]:secret", "amqp:u:secret", "amqp://host/u:secret/a",
        "amqp://a..b", "amqp://u:secret@.a", "amqp://ü..x", f"amqp://{'a' * 64}.b", "amqp://a%00b", "amqp://a%0Ab", "amqp://a%20b",
    ],
)  # fmt: skip
def test_refused_in_one_line_that_says_what_is_accepted(text: str) -> None:
    with pytest.raises(ConfigError, match="expected ") as caught:
        parse_url(text)
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://ann:123456", "amqp://ann:…"),
        ("amqp://host:x", "amqp://host:…"),
        ("amqp://host:99999", "amqp://host:99999"),
        ("amqp://host:5672/a/b", "amqp://host:5672/a/b"),
        ("amqp://[::1]:5672/a/b", "amqp://[::1]:5672/a/b"),
        ("host:5672", "host:5672"),
        ("ann:secret@host/a/b", "host/a/b"),
    ],
)
def test_a_refused_url_is_shown_as_far_as_it_can_be_no_password(text: str, shown: str) -> None:
    """Whoever leaves the host out has the password where a port would be."""
    with pytest.raises(ConfigError, match=f"^invalid URL {re.escape(repr(shown))}, "):
        parse_url(text)


def test_a_host_that_nothing_can_look_up_is_refused_however_it_comes() -> None:
    with pytest.raises(ConfigError, match=r"invalid host 'a\.\.b' in a URL, with an empty label"):
        Url(host="a..b", port=1)


@given(st.lists(st.sampled_from([".", "a", "ü", "ß", "-", "_", ":", "*", "\u06dd", "a" * 31, "a" * 62])))
def test_a_host_is_one_that_the_codec_of_host_names_takes(pieces: list[str]) -> None:
    host = "".join(pieces)
    try:
        taken = bool(host.encode("idna"))
    except UnicodeError:
        taken = False
    assert (host_problem(host) is None) == taken


@given(st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=8))
def test_a_password_is_in_no_text(password: str) -> None:
    url = parse_url(f"amqp://user:{password}@h:1")
    assert url.password == password
    assert password not in repr(url) and password not in str(url)
    with pytest.raises(ConfigError) as caught:
        parse_url(f"amqp://user:{password}@h:1/a/b")
    assert password not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "amqp://h:1",
        "amqp://h:1/acme",
        "amqp://jane@h/a%20b%2F%C3%BC",
        "amqps://jane@h",
        "amqp://[fe80::1%25eth0]:7",
        "amqp://ü.test:5",
    ],
)
def test_with_a_login_it_reads_as_itself(text: str) -> None:
    url = parse_url(text)
    assert parse_url(url.with_login()) == url
    url = replace(url, user="a b@:/").with_password("p%:@/?#ü ")
    assert parse_url(url.with_login()) == url


@pytest.mark.parametrize(
    ("text", "vhost", "hostname"),
    [
        ("amqp://h:1", None, "h"),
        ("amqp://h:1/", None, "h"),
        ("amqp://h:1/acme", "acme", "vhost:acme"),
        ("amqp://h/a%2Fb", "a/b", "vhost:a/b"),
        ("amqps://j:p@[::1]/%C3%BC", "ü", "vhost:ü"),
    ],
)
def test_the_path_is_the_virtual_host(text: str, vhost: str | None, hostname: str) -> None:
    url = parse_url(text)
    assert (url.vhost, url.hostname) == (vhost, hostname)
    assert parse_url(url.with_login()) == url and (vhost is None) is ("/" not in str(url).partition("://")[2])


@pytest.mark.parametrize("vhost", ["", "a\0b", "a\nb"])
def test_a_virtual_host_that_cannot_be_is_refused(vhost: str) -> None:
    with pytest.raises(ConfigError, match="invalid virtual host"):
        Url(host="h", port=1, vhost=vhost)
