"""Limits on what an MCP server may list and send: tools, pages, bytes, and messages per second."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from perdure.core.clock_and_ids import SYSTEM_CLOCK

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
