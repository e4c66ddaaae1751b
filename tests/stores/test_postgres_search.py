"""The search of a PostgreSQL store: what is found, where, and in which order."""

import pytest

from perdure import ConfigError, Message, Text, ToolResult, assistant, user
from perdure.events import Compacted, Custom, Entry, MessageAdded, ToolFinished

pytestmark = pytest.mark.needs("postgres")


async def kept(store, session_id: str, *events, first: int = 1, at: float = 1.0) -> None:
    lease = await store.acquire(session_id)
    entries = [Entry(seq, at, event, f"e-{seq}") for seq, event in enumerate(events, first)]
    await store.append(lease, entries, sync=False)
    await store.release(lease)


def said(text: str) -> MessageAdded:
    return MessageAdded(user(text))


async def places(store, query: str, **filters) -> list[tuple[str, int]]:
    return sorted((hit.session_id, hit.seq) for hit in await store.search(query, **filters))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("store", True),
        ("FILE log", True),
        ("perdure/stores/file_log.py", True),
        ("String", True),
        ("Größe ärger", True),
        ("kept", True),
        ("example", True),
        ("42", True),
        ("stores harbour", False),
        ("tore", False),
    ],
)
async def test_words_are_found_whatever_stands_around_them(store_of, query, found):
    store = store_of()
    text = 'see perdure/stores/file_log.py, core.store: Vec<String> "Größe" — ÄRGER <!-- kept --> a@example.com x=-42'
    await kept(store, "s", said(text))
    assert await places(store, query) == [("s", 1)] * found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('"red lantern"', [1]),
        ('"lantern red"', []),
        ("lantern -red", [2]),
        ('lantern -"red lantern"', [2]),
        ("red or harbour", [1, 3]),
        ("file_log.py", [3]),
        ("-lantern", [3]),
    ],
)
async def test_a_query_has_phrases_alternatives_and_exceptions(store_of, query, found):
    store = store_of()
    await kept(store, "s", said("the red lantern"), said("a lantern, green"), said("file_log.py of the harbour"))
    assert await places(store, query, syntax="query") == [("s", seq) for seq in found]


@pytest.mark.parametrize("query", ['"', "!", "&|", "- -"])
async def test_a_query_without_a_word_is_refused(store_of, query):
    with pytest.raises(ConfigError, match="there is no word in the query"):
        await store_of().search(query, syntax="query")
    assert await store_of().search(query) == []


async def test_only_what_was_said_is_found(store_of):
    store = store_of()
    await kept(
        store,
        "s",
        MessageAdded(assistant("kestrel")),
        ToolFinished("c", "t", ToolResult("c", "t", (Text("a kestrel"),))),
        Custom("kestrel", "kestrel"),
        Compacted(user("kestrel"), 1),
        MessageAdded(Message("system", (Text("kestrel"),))),
    )
    assert await places(store, "kestrel") == [("s", 1), ("s", 2)]
    assert [hit.role for hit in await store.search("kestrel", role="tool")] == ["tool"]


async def test_tenants_find_their_own(store_of):
    ours, theirs = store_of(tenant="search ours"), store_of(tenant="search theirs")
    await kept(ours, "s", said("a kestrel"))
    await kept(theirs, "t", said("another kestrel"))
    assert await places(ours, "kestrel") == [("s", 1)]
    assert await places(theirs, "kestrel") == [("t", 1)]
    assert await places(theirs, "-wren", syntax="query") == [("t", 1)]
    await ours.delete("s")
    await theirs.delete("t")


async def test_what_says_it_more_often_comes_first(store_of):
    store = store_of()
    await kept(store, "s", said("one lantern " + "and more " * 50), said("lantern, lantern and lantern"), at=1.0)
    hits = await store.search("lantern")
    assert [hit.seq for hit in hits] == [2, 1]
    assert hits[0].snippet == "«lantern», «lantern» and «lantern»"


async def test_of_equals_the_latest_comes_first(store_of):
    store = store_of()
    for number in range(3):
        await kept(store, f"s{number}", said("a lantern"), at=float(number))
    assert [hit.session_id for hit in await store.search("lantern")] == ["s2", "s1", "s0"]


async def test_what_forks_share_is_found_once_and_in_the_fork_that_is_asked_for(store_of):
    store = store_of()
    await kept(store, "a", said("a lantern"), said("a kestrel"))
    await store.fork("a", "b", at=1)
    await store.fork("b", "c")
    await kept(store, "c", said("a wren"), first=2)
    assert await places(store, "lantern") == [("a", 1)]
    assert await places(store, "lantern", session_id="c") == [("c", 1)]
    assert await places(store, "lantern", prefix="b") == [("b", 1)]
    assert await places(store, "kestrel", session_id="b") == []
    assert await places(store, "wren", session_id="c") == [("c", 2)]
    await store.delete("a")
    assert await places(store, "lantern") == [("b", 1)]
    await store.delete("b")
    assert await places(store, "lantern") == [("c", 1)]
    await store.delete("c")
    assert await places(store, "lantern") == []


async def test_a_damaged_entry_does_not_hide_the_others(postgres, tenant, store_of):
    store = store_of()
    await kept(store, "s", said("a lantern"), said("a lantern"))
    damage = "UPDATE perdure.entry SET body = '{{' FROM perdure.session WHERE session = key AND tenant = %s AND seq = 1"
    postgres.ask(damage, tenant)
    assert [(hit.seq, hit.snippet) for hit in await store.search("lantern")] == [(2, "a «lantern»"), (1, "")]


async def test_a_text_of_a_megabyte_is_found_to_its_end(store_of):
    store = store_of()
    output = "first " + "the same line again and again\n" * 35_000 + "last"
    await kept(store, "s", ToolFinished("c", "t", ToolResult("c", "t", (Text(output),))))
    (hit,) = await store.search("first last")
    assert "«first»" in hit.snippet
    (hit,) = await store.search("last")
    assert hit.snippet.endswith("«last»")


async def test_a_text_with_more_words_than_the_server_can_index_is_kept_and_found_by_its_beginning(store_of):
    store = store_of()
    output = " ".join(f"w{number}" for number in range(150_000))
    await kept(store, "s", ToolFinished("c", "t", ToolResult("c", "t", (Text(output),))))
    assert await places(store, "w0 w30000") == [("s", 1)]
    assert await places(store, "w149999") == []
    assert (await store.read("s"))[0].event.result.text == output
