"""Writes TOML, which Python's standard library only reads.

Rules of this file: pure; the text is read back as the same document.
"""

import json
from collections.abc import Mapping
from typing import Any


def document_text(document: Mapping[str, Any]) -> str:
    """The document: first its tables, then its lists of tables."""
    tables, lists = [], []
    for name, value in document.items():
        if isinstance(value, Mapping):
            tables.append(f"[{_key(name)}]\n{_entries(value)}")
        else:
            lists += [f"[[{_key(name)}]]\n{_entries(entry)}" for entry in value]
    return "\n".join([*tables, *lists])


def _entries(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in table.items())


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if is_bare else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    return str(value)  # numbers, and times of day, which TOML writes as Python does


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
