"""What the tests of search share: things that are said, and ways to look for them."""

from typing import Any

from perdure import Text, ToolResult, assistant, user
from perdure.events import Entry, Event, MessageAdded, RunStarted, ToolFinished
from perdure.stores import Hit, SearchableStore, Store


def said(text: str, role: str = "user") -> Event:
    """Something that somebody says."""
    if role == "tool":
        return ToolFinished(call_id="c", name="shell", result=ToolResult("c", "shell", (Text(text),)))
    return MessageAdded(message=user(text) if role == "user" else assistant(text))


def logged(*events: Event | str, first: int = 1, at: float = 1000.0) -> list[Entry]:
    """Events as entries, a second apart; words alone are said by a person."""
    said_by = [said(event) if isinstance(event, str) else event for event in events]
    return [Entry(seq, at + seq, event, f"e-{seq}") for seq, event in enumerate(said_by, first)]


async def keep(store: Store, session_id: str, *events: Event | str, first: int = 1, at: float = 1000.0) -> None:
    """Append events to a session that nobody drives."""
    lease = await store.acquire(session_id)
    await store.append(lease, logged(*events, first=first, at=at), sync=False)
    await store.release(lease)


def places(hits: list[Hit]) -> list[tuple[str, int]]:
    """Where something was found, the best first."""
    return [(hit.session_id, hit.seq) for hit in hits]


async def found(store: SearchableStore, query: str, **narrowed: Any) -> list[tuple[str, int]]:
    """Where something is found, in the order of the log."""
    return sorted(places(await store.search(query, **narrowed)))


def lines(count: int, what: str = "line") -> list[Event]:
    """Much that is said, each a little different, with something in between that is not."""
    return [RunStarted() if number % 10 == 0 else said(f"{what} number{number}") for number in range(1, count + 1)]
