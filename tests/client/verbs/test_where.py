"""`holdfast where`: what a message-id may mean, what is printed, and the verb against two nodes."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.amqp.wire.types import Ulong
from holdfast.client.verbs.where import ids_of, lines_of
from holdfast.errors import ConfigError
from support.process import NodeProcess, run_holdfast

UUID_TEXT = "00000000-0000-0000-0000-000000000005"


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("order 17", None, ["order 17"]),
        ("17", None, ["17", Ulong(17)]),
        (str(2**64 - 1), None, [str(2**64 - 1), Ulong(2**64 - 1)]),
        (str(2**64), None, [str(2**64)]),
        ("١٧", None, ["١٧"]),
        (UUID_TEXT, None, [UUID_TEXT, UUID(int=5)]),
        ("0x00ff", None, ["0x00ff", b"\x00\xff"]),
        ("0xzz", None, ["0xzz"]),
        ("00ff", "binary", [b"\x00\xff"]),
        ("17", "text", ["17"]),
        ("17", "ulong", [Ulong(17)]),
        (UUID_TEXT, "uuid", [UUID(int=5)]),
    ],
)
def test_what_a_message_id_may_mean(text: str, kind: str | None, found: list[object]) -> None:
    ids = ids_of(text, kind)
    assert ids == found and list(map(type, ids)) == list(map(type, found))


@pytest.mark.parametrize(
    ("text", "kind"), [("x", "ulong"), (str(2**64), "ulong"), ("1" * 5_000, "ulong"), ("x", "uuid"), ("xyz", "binary")]
)
def test_what_is_none_of_its_type_is_refused(text: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"MESSAGE-ID, of type {kind}; expected"):
        ids_of(text, kind)


def test_what_a_person_reads() -> None:
    steps = [
        {"node": "a", "state": "passed", "next": "d", "since": "T1", "at": "T2"},
        {"node": "d", "state": "queued", "queue": "work", "sequence": 7, "since": "T3", "waits_for": "a consumer"},
    ]
    answer = {
        "message_id": "m", "found": True, "complete": True, "custody": "d", "state": "queued",
        "waits_for": "a consumer", "path": [{"node": "a", "since": "T1"}, {"node": "d", "since": "T3"}],
        "steps": steps,
    }  # fmt: skip
    lines = lines_of(answer)
    assert lines[:2] == ["m: queued at d, queue work; waits for a consumer", "path so far: a -> d"]
    assert lines[3].split() == ["node", "state", "since", "at", "queue", "sequence", "next", "waits_for"]
    lost = answer | {"found": False, "path": [], "steps": [{"node": "a", "state": "not here"}]}
    assert lines_of(lost)[0] == "m: nothing is known of it at a"


async def test_the_verb_along_two_nodes(tmp_path: Path) -> None:
    hub_toml, site_toml = tmp_path / "hub.toml", tmp_path / "site.toml"
    hub_toml.write_text(
        f'[node]\nname = "hub"\ndata = "{tmp_path}/hub"\nlisten = ["127.0.0.1:0"]\ncreate_queues = true\n'
        '[[neighbour]]\nname = "site"\n'
    )
    async with await NodeProcess.start(config=hub_toml) as hub:
        site_toml.write_text(
            f'[node]\nname = "site"\ndata = "{tmp_path}/site"\nlisten = ["127.0.0.1:0"]\n'
            f'[[neighbour]]\nname = "hub"\nremote = "127.0.0.1:{hub.port}"\n'
        )
        async with await NodeProcess.start(config=site_toml) as site:
            at = ("--url", site.url)
            sent = await run_holdfast("send", "work@hub", "--count", "2", *at)
            assert sent.code == 0, sent.stderr
            got = await run_holdfast("receive", "work", "--count", "1", "--json", "--url", hub.url)
            first = json.loads(got.stdout)["message_id"]
            second = first.removesuffix("1") + "2"
            found = await run_holdfast("where", second, "--json", *at)
            told = json.loads(found.stdout)
            assert found.code == 0 and (told["message_id"], told["found"], told["custody"]) == (second, True, "hub")
            assert [hop["node"] for hop in told["path"]] == ["site", "hub"] and told["complete"]
            assert [step["state"] for step in told["steps"]] == ["passed", "queued"]
            shown = await run_holdfast("where", second, *at)
            said = [f"{second}: queued at hub, queue work; waits for a consumer", "path so far: site -> hub"]
            assert shown.stdout.splitlines()[:2] == said
            assert json.loads((await run_holdfast("where", first, "--json", *at)).stdout)["state"] == "consumed"
            missing = await run_holdfast("where", "p-3", *at)
            assert missing.code == 1 and missing.stdout.startswith("p-3: nothing is known of it at site")
            wrong = await run_holdfast("where", "p-3", "--type", "uuid", *at)
            assert wrong.code == 2 and "of type uuid; expected a UUID" in wrong.stderr
