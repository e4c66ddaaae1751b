"""What an MCP server may list and send: limits, and its tools, checked, with their names for the model."""

import hashlib
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from perdure._core.schema.parameters import Parameters, build_parameters_from_json_schema, check_json_schema
from perdure._core.values.clock import SYSTEM_CLOCK
from perdure._core.values.error import ConfigError

MAX_TOOLS: Final = 256
"""Tools of one server; the rest is left out."""
MAX_PAGES: Final = 100
"""Pages of one listing."""
MAX_ITEMS: Final = 1_000
"""Resources or prompts of one server."""
MAX_DESCRIPTION_BYTES: Final = 4 * 1024
"""Bytes of a description that the model is shown."""
MAX_SCHEMA_BYTES: Final = 64 * 1024
"""Bytes of a schema; a tool with a larger one is left out."""
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one message from a server."""
MAX_GARBAGE_LINES: Final = 1_000
"""Lines of a server's standard output that are no messages, before the connection is closed."""
FLOOD_MESSAGES: Final = 5_000
"""Messages within `FLOOD_SECONDS` that are too many."""
FLOOD_SECONDS: Final = 5.0


class FloodMeter:
    """Counter of the messages from an MCP server; it calls `on_flood` when too many arrive within a few seconds."""

    def __init__(
        self,
        on_flood: Callable[[str], None],
        *,
        most: int = FLOOD_MESSAGES,
        seconds: float = FLOOD_SECONDS,
        monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic,
    ) -> None:
        self._on_flood = on_flood
        self._most = most
        self._seconds = seconds
        self._monotonic = monotonic
        self._count = 0
        self._since = monotonic()

    def count_messages(self, count: int = 1) -> None:
        """Count messages; call `on_flood` once they are too many."""
        self._count += count
        if self._count <= self._most:
            return
        now = self._monotonic()
        if now - self._since < self._seconds:
            self._on_flood(f"it sent more than {self._most} messages within {self._seconds:g} seconds")
        self._count, self._since = 0, now


async def collect_pages(
    list_page: Callable[[str | None], Awaitable[Any]], field: str, max_items: int
) -> tuple[list[Any], bool]:
    """Fetch the pages of an MCP list; return at most `max_items` items, and True if pages were left out."""
    found: list[Any] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        page = await list_page(cursor)
        found += getattr(page, field)
        cursor = page.next_cursor
        if len(found) >= max_items or cursor is None:
            return found[:max_items], False
        if cursor in seen:
            return found, True
        seen.add(cursor)
    return found, True


_MAX_TOOL_NAME: Final = 64
_UNUSABLE_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_CUT_NOTE: Final = " […]"
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class ListedTool(Struct, frozen=True, kw_only=True):
    """Tool as an MCP server lists it: its name at the server, texts and schemas, and its name for the model."""

    server: str
    name: str
    """The name by which the server knows it, as it was sent."""
    offered_name: str
    """The name for the model: `server__tool`."""
    title: str = ""
    description: str = ""
    """The description as it was sent, in full."""
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] = {}
    """The hints of the server: `readOnlyHint`, `destructiveHint`, `idempotentHint`, `openWorldHint`."""
    parameters: Parameters

    @property
    def shown_description(self) -> str:
        """The description for the model: without characters that cannot be seen, and within the limit."""
        text = clean_text(self.description or self.title)
        data = text.encode("utf-8", "replace")
        if len(data) <= MAX_DESCRIPTION_BYTES:
            return text
        return data[: MAX_DESCRIPTION_BYTES - len(_CUT_NOTE.encode())].decode("utf-8", "ignore") + _CUT_NOTE

    def get_hint(self, name: str) -> bool | None:
        """Return a hint of the server; `None` if it gives none that is true or false."""
        value = self.annotations.get(name)
        return value if isinstance(value, bool) else None

    @property
    def pinned_texts(self) -> dict[str, Any]:
        """Texts, schemas and hints of the tool that a pin covers."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "input_schema": self.input_schema,
            "output_schema": self.output_schema,
            "annotations": {name: self.annotations[name] for name in _HINTS if name in self.annotations},
        }


class CheckedToolList(Struct, frozen=True):
    """Tools of an MCP server that can be used, and a message about each one that cannot."""

    tools: tuple[ListedTool, ...] = ()
    problems: tuple[str, ...] = ()


def check_tool_list(server: str, listed: Iterable[Mapping[str, Any]], *, is_cut: bool = False) -> CheckedToolList:
    """Build a `CheckedToolList` from a server's JSON list of tools, without invalid, too large and duplicate ones."""
    found: dict[str, ListedTool] = {}
    problems: list[str] = ["it lists more pages than are read"] if is_cut else []
    for count, each in enumerate(listed):
        if count >= MAX_TOOLS:
            problems.append(f"it lists more than {MAX_TOOLS} tools: the others are left out")
            break
        name = each.get("name")
        label = repr(clean_text(name)[:80]) if isinstance(name, str) else f"number {count + 1}"
        try:
            tool = _read_tool(server, each)
        except (ConfigError, msgspec.MsgspecError, RecursionError) as error:
            problems.append(f"tool {label} is left out: {clean_text(str(error))[:300]}")
            continue
        if tool.offered_name in found:
            problems.append(f"tool {label} is left out: another has the name {tool.offered_name!r}")
            continue
        found[tool.offered_name] = tool
    return CheckedToolList(tuple(found.values()), tuple(problems))


def _read_tool(server: str, values: Mapping[str, Any]) -> ListedTool:
    name, description, title = values.get("name"), values.get("description") or "", values.get("title") or ""
    if not isinstance(name, str) or not isinstance(description, str) or not isinstance(title, str):
        raise ConfigError("its name, title and description have to be texts")
    if len(description) > MAX_SCHEMA_BYTES:
        raise ConfigError(f"its description has {len(description)} characters, and {MAX_SCHEMA_BYTES} are the most")
    input_schema = _check_size("input", values.get("inputSchema"))
    output_schema = values.get("outputSchema")
    if output_schema is not None:
        output_schema = check_json_schema(_check_size("output", output_schema))
    annotations = values.get("annotations")
    return ListedTool(
        server=server,
        name=name,
        offered_name=build_offered_name(server, name),
        title=title,
        description=description,
        input_schema=input_schema,
        output_schema=output_schema,
        annotations=dict(cast("Mapping[str, Any]", annotations)) if isinstance(annotations, Mapping) else {},
        parameters=build_parameters_from_json_schema(input_schema),
    )


def _check_size(kind: str, schema: object) -> dict[str, Any]:
    """Return a schema that is an object and not too large. Raises `ConfigError`."""
    if not isinstance(schema, Mapping):
        raise ConfigError(f"its {kind} schema is no object")
    data = msgspec.json.encode(schema)
    if len(data) > MAX_SCHEMA_BYTES:
        raise ConfigError(f"its {kind} schema has {len(data)} bytes, and {MAX_SCHEMA_BYTES} are the most")
    return dict(cast("Mapping[str, Any]", schema))


def build_offered_name(server: str, tool: str) -> str:
    """Return `server__tool` in characters that every provider accepts, with a hash if the name would be ambiguous.

    So no two tools get the same name, of one server or of several, however similar they look.
    """
    prefix = _UNUSABLE_CHARACTERS.sub("_", server)
    cleaned = _UNUSABLE_CHARACTERS.sub("_", tool).strip("_")
    name = f"{prefix}__{cleaned}"
    is_plain = cleaned == tool and prefix == server and "__" not in server and not server.endswith("_")
    if is_plain and len(name) <= _MAX_TOOL_NAME:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: _MAX_TOOL_NAME - 9]}_{digest}"


def clean_text(text: str) -> str:
    """Return a text without control, format and bidirectional characters; newlines and tabs are kept."""
    if text.isascii() and text.isprintable():
        return text
    return "".join([each for each in text if each in "\n\t" or unicodedata.category(each)[0] != "C"])
