"""The tables `[[access]]` and `[[group]]` of a node's file (docs/security.md).

Rules of this file: relations between their values are checked by AccessConfig, which names the table and the key.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdfast.access.rules import AccessConfig, AccessRule, GroupConfig
from holdfast.schema import TEXT, TEXTS, Keys

LISTS: Final[Mapping[str, Keys]] = {
    "access": {
        "name": TEXT,
        "users": TEXTS,
        "groups": TEXTS,
        "addresses": TEXTS,
        "allow": TEXTS,
        "deny": TEXTS,
        "vhost": TEXT,
    },
    "group": {"name": TEXT, "users": TEXTS, "vhost": TEXT},
}


def access_of(document: Mapping[str, Any]) -> AccessConfig:
    """The rules of a document whose keys and types were checked."""
    return AccessConfig(
        rules=tuple(AccessRule(**{"addresses": (), **_tuples(table)}) for table in document.get("access", ())),
        groups=tuple(GroupConfig(**{"users": (), **_tuples(table)}) for table in document.get("group", ())),
    )


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
