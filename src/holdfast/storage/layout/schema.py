"""The version of a store's layout, and the identity of the store.

Rules of this file: a store of a newer layout, or one older than all that `storage/upkeep/upgrades.py` knows, is refused
with one line and not touched. A change of the layout increments SCHEMA, and adds to UPGRADES there the step from the
previous layout.

1: an entry a record; `entries`, `chunks`, `tables`. 2: consecutive entries share a record, `gaps` says which have left.
3: `blobs`, and the table of that name.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import lmdb

from holdfast.errors import StorageError
from holdfast.storage.layout.blobs import DATABASES as BLOB_DATABASES
from holdfast.storage.layout.entries import DATABASES as ENTRY_DATABASES

__all__ = [
    "BACKUP_KEY",
    "DATABASES",
    "DATABASES_MAX",
    "FILE_KEY",
    "OLDEST",
    "SCHEMA",
    "SCHEMA_KEY",
    "UUID_KEY",
    "Identity",
    "databases",
    "read_identity",
]

SCHEMA: Final = 3
OLDEST: Final = 1
"""The oldest layout that can be upgraded."""

SCHEMA_KEY: Final = b"holdfast.schema"
UUID_KEY: Final = b"holdfast.uuid"
BACKUP_KEY: Final = b"holdfast.backup"
"""In a backup alone: when it was made (ISO 8601). No node opens such a store; `restore` makes one of it."""

FILE_KEY: Final = b"holdfast.file"
"""Which file it is and how often it was opened (storage/files/copied.py); not in a store that was never opened."""

DATABASES: Final = (*ENTRY_DATABASES, *BLOB_DATABASES, b"tables")
DATABASES_MAX: Final = 16
"""Room for the databases of other layouts."""

Identity = tuple[int, UUID, str | None]
"""Schema, store UUID, when the backup was made or None."""


def read_identity(env: lmdb.Environment, path: Path, txn: "lmdb.Transaction[bytes] | None" = None) -> Identity:
    """The identity of the store in `path`, as `txn` sees it. `StorageError` if it is not a store of Holdfast, or of an
    unknown layout."""
    with nullcontext(txn) if txn is not None else env.begin() as txn:
        schema, stored, backup = txn.get(SCHEMA_KEY), txn.get(UUID_KEY), txn.get(BACKUP_KEY)
    if schema is None or stored is None:
        raise StorageError(f"store {path}: data.mdb is an LMDB file, but not a Holdfast store")
    if not schema.isdigit() or len(schema) > 9:
        raise StorageError(f"store {path}: invalid schema {schema!r}; expected a number")
    version = int(schema)
    if not OLDEST <= version <= SCHEMA:
        made_by = "a newer" if version > SCHEMA else "an older"
        raise StorageError(
            f"store {path}: made by {made_by} Holdfast: schema {version}, this one reads {OLDEST} to {SCHEMA}"
        )
    if len(stored) != 16:
        raise StorageError(f"store {path}: its UUID has {len(stored)} bytes, expected 16")
    return version, UUID(bytes=stored), None if backup is None else backup.decode(errors="replace")


def databases(env: lmdb.Environment, txn: "lmdb.Transaction[Any]") -> list[Any]:
    """Handles of DATABASES, in that order."""
    return [env.open_db(name, txn=txn) for name in DATABASES]
