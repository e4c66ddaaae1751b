"""The contract of stores that can be searched: all is found, and nothing that is gone. Above: `contracts.py`."""

from collections.abc import Awaitable
from typing import Any

from perdure.core.error import ConfigError
from perdure.core.event import Entry, Event, MessageAdded, ToolFinished
from perdure.core.message import Text, ToolResult, assistant, user
from perdure.core.store import Hit, Searchable, Store

from .contracts_store_trial import (
    HOSTILE_TEXTS,
    UNENCODABLE,
    Chapter,
    LeftOut,
    Trial,
    begun,
    expect,
    numbered,
    refused,
    said,
)

HOSTILE_QUERIES = (
    *HOSTILE_TEXTS, *UNENCODABLE,
    '"', '""', '"kestrel', "'", "*", "k*", "(", ")", "((", "kestrel)", "AND", "OR", "NOT", "NEAR", "NEAR(", "a AND",
    "NOT kestrel", "kestrel NOT", "-kestrel", "+kestrel", "^kestrel", "text:kestrel", "text :", ":*", "{a b}: c", "&",
    "|", "!", "!!", "<->", "a <-> b", "a & | b", "\\", "\\:*", "%", "_", "?", "$1", ";", "--", "/*", "«»", "…",
    "x" * 10_000, "kestrel " * 2_000, "(" * 2_000,
)  # fmt: skip
"""What people paste into a field for a search."""

_LONG = 1000
"""Characters of a query that is not unreasonable."""


class _Searched:
    """A store that can be searched, among the sessions of one trial."""

    def __init__(self, trial: Trial) -> None:
        store = trial.store
        if not isinstance(store, Searchable):
            raise LeftOut("the store is not `Searchable`")
        self._search = store.search
        self.name = trial.name

    async def hits(self, query: str, **filters: Any) -> list[Hit]:
        narrowed: dict[str, Any] = {"prefix": self.name, **filters}
        return await self._search(query, **narrowed)

    async def places(self, query: str, **filters: Any) -> list[tuple[str, int]]:
        """Where it was found: the end of the session's id, and the number of the entry."""
        return sorted((hit.session_id.removeprefix(self.name), hit.seq) for hit in await self.hits(query, **filters))


async def _conversation(store: Store, name: str) -> None:
    """Two sessions, in which all three speak."""
    result = ToolResult("c", "grep", (Text("two matches: a kestrel, and the harbour"),))
    events: list[Event] = [
        MessageAdded(user("the harbour lantern is red")),
        MessageAdded(assistant("a Lantern for the master of the harbour")),
        ToolFinished("c", "grep", result),
    ]
    lease = await store.acquire(name + "a")
    entries = [Entry(seq, 100.0 * seq, event, f"{name}{seq}") for seq, event in enumerate(events, 1)]
    await store.append(lease, entries, sync=False)
    await store.release(lease)
    lease = await store.acquire(name + "b")
    await store.append(lease, numbered(1, [MessageAdded(user("only kestrel feathers, Größe 42"))], at=400.0), sync=True)
    await store.release(lease)


async def _what_was_said_is_found(trial: Trial) -> None:
    searched = _Searched(trial)
    await _conversation(trial.store, trial.name)
    for query, expected in (
        ("harbour", [("a", 1), ("a", 2), ("a", 3)]),
        ("lantern harbour", [("a", 1), ("a", 2)]),
        ("HARBOUR  lantern", [("a", 1), ("a", 2)]),
        ("kestrel", [("a", 3), ("b", 1)]),
        ("größe", [("b", 1)]),
        ("42", [("b", 1)]),
        ("harbour feathers", []),
        ("absent", []),
    ):
        expect(await searched.places(query), expected, f"search({query!r}) finds what holds all the words, at once")
        found = await searched.places(query, syntax="words")
        expect(found, expected, f"search({query!r}) and search({query!r}, syntax='words') are the same")
    found = await searched.places("feathers", syntax="query")
    expect(found, [("b", 1)], "search('feathers', syntax='query') finds a word")
    hits = await searched.hits("kestrel")
    told = sorted((hit.role, hit.at) for hit in hits)
    expect(told, [("tool", 300.0), ("user", 400.0)], "a hit tells who said it, and when")
    for hit in hits:
        expect("«kestrel»" in hit.snippet, expected=True, promise="a snippet has what matched between « and »")
    scores = [hit.score for hit in await searched.hits("harbour")]
    expect(scores, sorted(scores, reverse=True), "the best hits come first")


async def _a_search_can_be_narrowed(trial: Trial) -> None:
    searched = _Searched(trial)
    await _conversation(trial.store, trial.name)
    a, b = trial.name + "a", trial.name + "b"
    for what, filters, expected in (
        ("session_id", {"session_id": a}, [("a", 3)]),
        ("session_id", {"session_id": trial.name + "none"}, []),
        ("prefix", {"prefix": b}, [("b", 1)]),
        ("prefix", {"prefix": trial.name + "%"}, []),
        ("role", {"role": "tool"}, [("a", 3)]),
        ("role", {"role": "user"}, [("b", 1)]),
        ("role", {"role": "assistant"}, []),
        ("since", {"since": 350.0}, [("b", 1)]),
        ("until", {"until": 350.0}, [("a", 3)]),
        ("since and until", {"since": 250.0, "until": 350.0}, [("a", 3)]),
        ("since and until", {"since": 320.0, "until": 380.0}, []),
        ("all", {"session_id": b, "role": "user", "since": 1.0, "until": 500.0}, [("b", 1)]),
    ):
        expect(await searched.places("kestrel", **filters), expected, f"search() narrowed by {what}: {filters!r}")


async def _a_search_has_pages(trial: Trial) -> None:
    searched = _Searched(trial)
    store = trial.store
    await begun(store, trial.name + "many", *(f"lantern number {number}" for number in range(30)))
    everything = await searched.hits("lantern", limit=50)
    expect(len(everything), 30, "search(limit=50) gives what there is")
    expect(len(await searched.hits("lantern")), 20, "search() gives 20 unless more are asked for")
    pages = [await searched.hits("lantern", limit=7, offset=offset) for offset in range(0, 42, 7)]
    expect([len(page) for page in pages], [7, 7, 7, 7, 2, 0], "search(limit=7, offset=…) gives pages of 7")
    together = [(hit.session_id, hit.seq) for page in pages for hit in page]
    expect(together, [(hit.session_id, hit.seq) for hit in everything], "pages are in the order of the whole")


async def _what_is_gone_is_not_found(trial: Trial) -> None:
    searched = _Searched(trial)
    store, name = trial.store, trial.name
    entries = await begun(store, name + "a", "the kestrel", "a lantern")
    await begun(store, name + "b", "another kestrel")
    expect(await searched.places("kestrel"), [("a", 1), ("b", 1)], "what was said is found")
    lease = await store.acquire(name + "a")
    await store.redact(lease, Entry(1, 1.25, MessageAdded(user("a wren")), entries[0].id))
    expect(await searched.places("kestrel"), [("b", 1)], "what was redacted is not found")
    expect(await searched.places("wren"), [("a", 1)], "what was put in its place is found")
    await store.append(lease, said(3, "a third kestrel"), sync=False)
    expect(await searched.places("kestrel"), [("a", 3), ("b", 1)], "what is said after a redaction is found")
    await store.delete(name + "b")
    expect(await searched.places("kestrel"), [("a", 3)], "what was deleted is not found")
    await begun(store, name + "b", "nothing of the kind")
    expect(await searched.places("kestrel"), [("a", 3)], "nor under an id that is used again")


async def _what_forks_share_is_found(trial: Trial) -> None:
    searched = _Searched(trial)
    store, name = trial.store, trial.name
    await begun(store, name + "parent", "the kestrel", "a lantern")
    await store.fork(name + "parent", name + "child", at=1)
    lease = await store.acquire(name + "child")
    await store.append(lease, said(2, "a wren"), sync=True)
    expect(await searched.places("wren"), [("child", 2)], "what a fork holds alone is found there")
    await store.delete(name + "parent")
    expect(await searched.places("kestrel"), [("child", 1)], "what a fork shared with a deleted session is found there")
    expect(await searched.places("lantern"), [], "and what it did not share is gone")


async def _hostile_text_is_found(trial: Trial) -> None:
    searched = _Searched(trial)
    texts = [f"{text} kestrel" for text in (*HOSTILE_TEXTS, *UNENCODABLE)]
    await begun(trial.store, trial.name + "a", *texts)
    found = await searched.hits("kestrel", limit=50)
    numbers = sorted(hit.seq for hit in found)
    expect(numbers, list(range(1, len(texts) + 1)), "a word is found, whatever stands before it")
    for hit in found:
        expect(hit.snippet.encode("utf-8", "replace") != b"", expected=True, promise="a snippet is text")


async def _no_query_is_too_hostile(trial: Trial) -> None:
    searched = _Searched(trial)
    await _conversation(trial.store, trial.name)
    for query in HOSTILE_QUERIES:
        makes_sense = any(map(str.isalnum, query)) and len(query) <= _LONG
        await _judged(searched.hits(query), query, "words", may_refuse=not makes_sense)
        await _judged(searched.hits(query, syntax="query"), query, "query", may_refuse=True)
    for filters in ({"limit": -1}, {"offset": -1}, {"limit": 2**63}, {"prefix": "\0"}, {"session_id": "\0"}):
        await refused(ConfigError, searched.hits("kestrel", **filters), f"search() with {filters!r}")
    await refused(ConfigError, searched.hits("kestrel", syntax="regex"), "search() with syntax='regex'")
    await refused(ConfigError, searched.hits("kestrel", role="nobody"), "search() with role='nobody'")


async def _judged(work: Awaitable[object], query: str, syntax: str, *, may_refuse: bool) -> None:
    """Plain words are looked for, whatever is in them; only what holds no word, or too many, may be refused."""
    promise = f"search({ascii(query)[:60]}, syntax={syntax!r}) raises {'ConfigError or ' if may_refuse else ''}nothing"
    try:
        await work
    except ConfigError as error:
        expect(may_refuse, expected=True, promise=f"{promise}, not {error!r}")
        expect(bool(str(error)), expected=True, promise="a query that makes no sense is refused with a message")
    except Exception as error:
        raise AssertionError(f"broken promise: {promise}, not {error!r}") from error


CHAPTERS: tuple[Chapter, ...] = (
    _what_was_said_is_found,
    _a_search_can_be_narrowed,
    _a_search_has_pages,
    _what_is_gone_is_not_found,
    _what_forks_share_is_found,
    _hostile_text_is_found,
    _no_query_is_too_hostile,
)
