"""Data classes of long-term memory: a record with its provenance, its scope (user, project), and a search hit."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.values import checks
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import convert, replace_surrogates, to_jsonable
from perdure._core.values.message import check_labels, merge_labels
from perdure._core.values.provenance import IMPORTED_LABEL, UNTRUSTED_LABEL

MemoryKind: TypeAlias = Literal["fact", "entity", "episode"]
KINDS: Final = ("fact", "entity", "episode")

MAX_TEXT_CHARACTERS: Final = 8_000
"""Characters of a memory; longer texts belong into files."""
MAX_TAGS: Final = 16
MAX_TAG_CHARACTERS: Final = 64
MAX_PARTICIPANTS: Final = 32
MAX_NAME_CHARACTERS: Final = 200
MAX_ID_CHARACTERS: Final = 128
MAX_LABELS: Final = 64
MAX_SOURCES: Final = 64
"""Sources of a memory that are kept; of an entity the latest."""
MAX_SOURCE_CHARACTERS: Final = 500
FIRST_SECOND: Final = -62_135_596_800
"""The beginning of the year 1, in seconds since 1970: the first time that has a date."""
LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999."""
UNTRUSTED_LABELS: Final = frozenset({UNTRUSTED_LABEL, IMPORTED_LABEL})
"""Labels of text that anybody may have written."""


class MemoryScope(Struct, frozen=True, kw_only=True):
    """Owner of memories: a user, a project, a user in a project, or neither. A search stays within its scopes."""

    user: str = ""
    project: str = ""

    def __post_init__(self) -> None:
        for name, value in (("user", self.user), ("project", self.project)):
            checks.require_text("MemoryScope", name, value)
            checks.require_one_line("MemoryScope", name, value)
            if replace_surrogates(value) != value:
                checks.raise_config_error("MemoryScope", name, value, "give text without lone surrogates")


class MemoryRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A long-term memory: its text, kind, tags, sources and times."""

    id: str
    """Id of the memory, unique in its file."""
    text: str
    """The text that is searched and recalled."""
    kind: MemoryKind = "fact"
    """`fact`, `entity` (what is known of one person or thing) or `episode` (something that happened)."""
    created_at: float
    """Time at which it was stored, in seconds since 1970."""
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """Labels such as `untrusted` of what the model had seen when it was stored. Recalled text has them again."""
    sources: tuple[str, ...] = ()
    """Where it comes from: `session:ID`, `run:ID`, `model:NAME`, `person:NAME`, …"""
    pinned: bool = False
    """True if it is in every request."""
    name: str = ""
    """Name of an entity."""
    type: str = ""
    """Type of an entity, such as `person`."""
    properties: dict[str, Any] = {}
    """Properties of an entity, or of an episode."""
    occurred_at: float | None = None
    """Time of an episode, in seconds since 1970."""
    participants: tuple[str, ...] = ()
    """Names of those who took part in an episode."""

    @property
    def is_untrusted(self) -> bool:
        """True if it was stored after the model had seen text of unknown authors."""
        return not UNTRUSTED_LABELS.isdisjoint(self.labels)

    @property
    def at(self) -> float:
        """The time that counts for recency: when it happened, or else when it was stored."""
        return self.created_at if self.occurred_at is None else self.occurred_at


class MemoryHit(Struct, frozen=True):
    """Search result: a memory, its relevance to the query, and its score."""

    memory: MemoryRecord
    score: float
    """Relevance and recency, weighted: from 0 to 1."""
    relevance: float
    """How well it matches the query, from 0 to 1."""


def build_record(fields: Mapping[str, Any]) -> MemoryRecord:
    """Build a memory record from untyped fields, with clean text. Raises `ConfigError` for missing or wrong fields."""
    try:
        record = convert(dict(fields), MemoryRecord)
    except msgspec.ValidationError as error:
        raise ConfigError(f"this is no memory: {error}") from error
    _check_id(record.id)
    _check_time("created_at", record.created_at)
    _check_time("occurred_at", record.created_at if record.occurred_at is None else record.occurred_at)
    text = replace_surrogates(record.text).replace("\0", "").strip()
    _check_length("text", text, MAX_TEXT_CHARACTERS)
    _check_length("name", record.name, MAX_NAME_CHARACTERS)
    _check_length("type", record.type, MAX_NAME_CHARACTERS)
    if not text:
        raise ConfigError("remember(text=''): give the text to remember")
    properties = to_jsonable(record.properties)
    _check_properties(properties)
    if len(record.labels) > MAX_LABELS:
        raise ConfigError(f"remember(labels=…) has {len(record.labels):,} labels: give at most {MAX_LABELS}")
    return replace(
        record,
        text=text,
        name=_clean_line(record.name),
        type=_clean_line(record.type),
        tags=normalize_tags(record.tags),
        labels=check_labels(record.labels),
        sources=tuple(
            dict.fromkeys([_clean_line(each[:MAX_SOURCE_CHARACTERS]) for each in record.sources[:MAX_SOURCES]])
        ),
        participants=_check_participants(record.participants),
        properties=properties,
    )


def normalize_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return tags of a memory in lower case, without duplicates. Raises `ConfigError` for too many or invalid tags."""
    if not isinstance(tags, (tuple, list)) or not all(isinstance(each, str) for each in tags):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"tags={tags!r}: give a list of words, such as ['coffee']")
    clean = tuple(dict.fromkeys([_clean_line(each).casefold() for each in tags]))
    if len(clean) > MAX_TAGS or not all(0 < len(each) <= MAX_TAG_CHARACTERS for each in clean):
        raise ConfigError(f"tags={tags!r}: give at most {MAX_TAGS} tags of 1 to {MAX_TAG_CHARACTERS} characters")
    return clean


def build_entity_key(record: MemoryRecord) -> str | None:
    """Return the key that identifies a remembered entity: its type and name, ignoring case; None for other memories."""
    return f"{record.type.casefold()}\n{record.name.casefold()}" if record.kind == "entity" else None


def merge_entity(known: MemoryRecord | None, new: MemoryRecord, *, has_text: bool) -> MemoryRecord:
    """Merge a new record about an entity into the known one; new properties replace known ones, tags are added."""
    before = {} if known is None else known.properties
    properties = {name: value for name, value in (before | new.properties).items() if value is not None}
    _check_properties(properties)
    if known is None:
        return replace(new, properties=properties)
    return replace(
        new,
        id=known.id,
        text=new.text if has_text else known.text,
        properties=properties,
        tags=normalize_tags((*known.tags, *new.tags)),
        labels=merge_labels(known.labels, new.labels),
        sources=tuple(dict.fromkeys((*known.sources, *new.sources)))[-MAX_SOURCES:],
        pinned=known.pinned and not new.is_untrusted,
    )


def build_indexed_text(record: MemoryRecord) -> str:
    """Return the text by which a memory is searched: its own text, its names and the values of its properties."""
    values = [str(value) for value in record.properties.values()]
    return "\n".join([each for each in (record.text, record.name, record.type, *record.participants, *values) if each])


def _check_id(name: str) -> None:
    checks.require_text("remember", "id", name, non_empty=True)
    checks.require_one_line("remember", "id", name)
    _check_length("id", name, MAX_ID_CHARACTERS)


def _check_time(name: str, at: float) -> None:
    if not FIRST_SECOND <= at <= LAST_SECOND:
        raise ConfigError(f"remember({name}={at!r}): give a time in seconds since 1970, up to the year 9999")


def _check_properties(properties: Mapping[str, Any]) -> None:
    _check_length("properties", msgspec.json.encode(properties).decode(), MAX_TEXT_CHARACTERS)


def _check_participants(names: Sequence[str]) -> tuple[str, ...]:
    clean = tuple(dict.fromkeys([name for each in names if (name := _clean_line(each))]))
    if len(clean) > MAX_PARTICIPANTS or any(len(each) > MAX_NAME_CHARACTERS for each in clean):
        raise ConfigError(
            f"participants={names!r}: give at most {MAX_PARTICIPANTS} names of {MAX_NAME_CHARACTERS} characters"
        )
    return clean


def _check_length(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise ConfigError(f"remember({name}=…) has {len(text):,} characters, and {most:,} are the most: shorten it")


def _clean_line(text: str) -> str:
    return " ".join(replace_surrogates(text).replace("\0", "").split())
