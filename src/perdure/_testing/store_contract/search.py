"""Tests in `check_store`: search finds all stored text, and never text that was deleted or redacted."""

from collections.abc import Awaitable
from typing import Any

from perdure._core.log.store import Hit, SearchableStore, Store
from perdure._core.values.error import ConfigError
from perdure._core.values.event import Entry, MessageAdded, ToolFinished
from perdure._core.values.event_class import Event
from perdure._core.values.message import Text, ToolResult, assistant, user

from .setup import (
    HOSTILE_TEXTS,
    UNENCODABLE,
    CheckSkipped,
    StoreCheck,
    StoreUnderTest,
    build_entries,
    build_user_entries,
    expect_equal,
    expect_error,
    store_session,
)

HOSTILE_QUERIES = (
    *HOSTILE_TEXTS, *UNENCODABLE,
    '"', '""', '"kestrel', "'", "*", "k*", "(", ")", "((", "kestrel)", "AND", "OR", "NOT", "NEAR", "NEAR(", "a AND",
    "NOT kestrel", "kestrel NOT", "-kestrel", "+kestrel", "^kestrel", "text:kestrel", "text :", ":*", "{a b}: c", "&",
    "|", "!", "!!", "<->", "a <-> b", "a & | b", "\\", "\\:*", "%", "_", "?", "$1", ";", "--", "/*", "«»", "…",
    "x" * 10_000, "kestrel " * 2_000, "(" * 2_000,
)  # fmt: skip
"""Search queries with special characters, as users paste them; none may make a search fail."""

_LONG_QUERY = 1000
"""Length of a long but reasonable query."""


class _SearchTrial:
    """A searchable store, limited to the sessions of one check."""

    def __init__(self, trial: StoreUnderTest) -> None:
        store = trial.store
        if not isinstance(store, SearchableStore):
            raise CheckSkipped("the store is not `SearchableStore`")
        self._search = store.search
        self.name = trial.name

    async def hits(self, query: str, **filters: Any) -> list[Hit]:
        narrowed: dict[str, Any] = {"prefix": self.name, **filters}
        return await self._search(query, **narrowed)

    async def places(self, query: str, **filters: Any) -> list[tuple[str, int]]:
        """Return where a query matches: the end of the session id, and the entry number."""
        return sorted((hit.session_id.removeprefix(self.name), hit.seq) for hit in await self.hits(query, **filters))


async def _store_conversations(store: Store, name: str) -> None:
    """Store two sessions with messages of user, model and tool."""
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
    await store.append(
        lease, build_entries(1, [MessageAdded(user("only kestrel feathers, Größe 42"))], at=400.0), sync=True
    )
    await store.release(lease)


async def _what_was_said_is_found(trial: StoreUnderTest) -> None:
    searched = _SearchTrial(trial)
    await _store_conversations(trial.store, trial.name)
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
        expect_equal(
            await searched.places(query), expected, f"search({query!r}) finds what holds all the words, at once"
        )
        found = await searched.places(query, syntax="words")
        expect_equal(found, expected, f"search({query!r}) and search({query!r}, syntax='words') are the same")
    found = await searched.places("feathers", syntax="query")
    expect_equal(found, [("b", 1)], "search('feathers', syntax='query') finds a word")
    hits = await searched.hits("kestrel")
    told = sorted((hit.role, hit.at) for hit in hits)
    expect_equal(told, [("tool", 300.0), ("user", 400.0)], "a hit tells who said it, and when")
    for hit in hits:
        expect_equal("«kestrel»" in hit.snippet, expected=True, promise="a snippet has what matched between « and »")
    scores = [hit.score for hit in await searched.hits("harbour")]
    expect_equal(scores, sorted(scores, reverse=True), "the best hits come first")


async def _a_search_can_be_narrowed(trial: StoreUnderTest) -> None:
    searched = _SearchTrial(trial)
    await _store_conversations(trial.store, trial.name)
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
        expect_equal(await searched.places("kestrel", **filters), expected, f"search() narrowed by {what}: {filters!r}")


async def _a_search_has_pages(trial: StoreUnderTest) -> None:
    searched = _SearchTrial(trial)
    store = trial.store
    await store_session(store, trial.name + "many", *(f"lantern number {number}" for number in range(30)))
    everything = await searched.hits("lantern", limit=50)
    expect_equal(len(everything), 30, "search(limit=50) gives what there is")
    expect_equal(len(await searched.hits("lantern")), 20, "search() gives 20 unless more are asked for")
    pages = [await searched.hits("lantern", limit=7, offset=offset) for offset in range(0, 42, 7)]
    expect_equal([len(page) for page in pages], [7, 7, 7, 7, 2, 0], "search(limit=7, offset=…) gives pages of 7")
    together = [(hit.session_id, hit.seq) for page in pages for hit in page]
    expect_equal(together, [(hit.session_id, hit.seq) for hit in everything], "pages are in the order of the whole")


async def _what_is_gone_is_not_found(trial: StoreUnderTest) -> None:
    searched = _SearchTrial(trial)
    store, name = trial.store, trial.name
    entries = await store_session(store, name + "a", "the kestrel", "a lantern")
    await store_session(store, name + "b", "another kestrel")
    expect_equal(await searched.places("kestrel"), [("a", 1), ("b", 1)], "what was said is found")
    lease = await store.acquire(name + "a")
    await store.redact(lease, Entry(1, 1.25, MessageAdded(user("a wren")), entries[0].id))
    expect_equal(await searched.places("kestrel"), [("b", 1)], "what was redacted is not found")
    expect_equal(await searched.places("wren"), [("a", 1)], "what was put in its place is found")
    await store.append(lease, build_user_entries(3, "a third kestrel"), sync=False)
    expect_equal(await searched.places("kestrel"), [("a", 3), ("b", 1)], "what is said after a redaction is found")
    await store.delete(name + "b")
    expect_equal(await searched.places("kestrel"), [("a", 3)], "what was deleted is not found")
    await store_session(store, name + "b", "nothing of the kind")
    expect_equal(await searched.places("kestrel"), [("a", 3)], "nor under an id that is used again")


async def _what_forks_share_is_found(trial: StoreUnderTest) -> None:
    searched = _SearchTrial(trial)
    store, name = trial.store, trial.name
    await store_session(store, name + "parent", "the kestrel", "a lantern")
    await store.fork(name + "parent", name + "child", at=1)
    lease = await store.acquire(name + "child")
    await store.append(lease, build_user_entries(2, "a wren"), sync=True)
    expect_equal(await searched.places("wren"), [("child", 2)], "what a fork holds alone is found there")
    await store.delete(name + "parent")
    expect_equal(
        await searched.places("kestrel"), [("child", 1)], "what a fork shared with a deleted session is found there"
    )
    expect_equal(await searched.places("lantern"), [], "and what it did not share is gone")


async def _hostile_text_is_found(trial: StoreUnderTest) -> None:
    searched = _SearchTrial(trial)
    texts = [f"{text} kestrel" for text in (*HOSTILE_TEXTS, *UNENCODABLE)]
    await store_session(trial.store, trial.name + "a", *texts)
    found = await searched.hits("kestrel", limit=50)
    numbers = sorted(hit.seq for hit in found)
    expect_equal(numbers, list(range(1, len(texts) + 1)), "a word is found, whatever stands before it")
    for hit in found:
        expect_equal(hit.snippet.encode("utf-8", "replace") != b"", expected=True, promise="a snippet is text")


async def _no_query_is_too_hostile(trial: StoreUnderTest) -> None:
    searched = _SearchTrial(trial)
    await _store_conversations(trial.store, trial.name)
    for query in HOSTILE_QUERIES:
        makes_sense = any(map(str.isalnum, query)) and len(query) <= _LONG_QUERY
        await _check_query(searched.hits(query), query, "words", may_refuse=not makes_sense)
        await _check_query(searched.hits(query, syntax="query"), query, "query", may_refuse=True)
    for filters in ({"limit": -1}, {"offset": -1}, {"limit": 2**63}, {"prefix": "\0"}, {"session_id": "\0"}):
        await expect_error(ConfigError, searched.hits("kestrel", **filters), f"search() with {filters!r}")
    await expect_error(ConfigError, searched.hits("kestrel", syntax="regex"), "search() with syntax='regex'")
    await expect_error(ConfigError, searched.hits("kestrel", role="nobody"), "search() with role='nobody'")


async def _check_query(work: Awaitable[object], query: str, syntax: str, *, may_refuse: bool) -> None:
    """Check that a query raises nothing; only an empty one, or one that is too long, may raise `ConfigError`."""
    promise = f"search({ascii(query)[:60]}, syntax={syntax!r}) raises {'ConfigError or ' if may_refuse else ''}nothing"
    try:
        await work
    except ConfigError as error:
        expect_equal(may_refuse, expected=True, promise=f"{promise}, not {error!r}")
        expect_equal(bool(str(error)), expected=True, promise="a query that makes no sense is refused with a message")
    except Exception as error:
        raise AssertionError(f"broken promise: {promise}, not {error!r}") from error


CHECKS: tuple[StoreCheck, ...] = (
    _what_was_said_is_found,
    _a_search_can_be_narrowed,
    _a_search_has_pages,
    _what_is_gone_is_not_found,
    _what_forks_share_is_found,
    _hostile_text_is_found,
    _no_query_is_too_hostile,
)
