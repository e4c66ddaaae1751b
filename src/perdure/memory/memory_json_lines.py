"""Export and import of memories as lines of JSON."""

import hashlib
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.error import ConfigError, PerdureError
from perdure.core.message import merge_labels
from perdure.core.provenance import IMPORTED_LABEL

from .memory_record import MemoryRecord, MemoryScope, build_record


class MemoryImportReport(Struct, frozen=True):
    """The result of importing memories: how many were added, and how many existed already."""

    added: int
    known: int


def parse_memory_line(line: bytes | str, number: int, *, trusted: bool) -> MemoryRecord:
    """Parse a memory from a line of an export. Raises `ConfigError` with the line number if it is no memory.

    Unless it is trusted, it gets the label `imported`, and is not pinned.
    """
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
        record = build_record(fields)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError, PerdureError) as error:
        raise ConfigError(f"line {number} is no memory: {error}; nothing was added from there on") from error
    if trusted:
        return msgspec.structs.replace(record, pinned=record.pinned and not record.is_untrusted)
    return msgspec.structs.replace(record, pinned=False, labels=merge_labels(record.labels, (IMPORTED_LABEL,)))


def build_imported_id(known: str, scope: MemoryScope) -> str:
    """Return a new id for an imported memory whose id exists in another scope; a repeated import gives the same id."""
    return f"mem_{hashlib.sha256(msgspec.json.encode([known, scope.user, scope.project])).hexdigest()[:32]}"
