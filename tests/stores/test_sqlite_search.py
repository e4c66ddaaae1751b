"""Search in an SQLite store: what is found, how it is told, and what is no longer found."""

from concurrent.futures import Future
from hashlib import sha256

import apsw
import pytest

from perdure import ConfigError, SessionBusy, StoreError
from perdure._stores.sqlite.search.index import IndexedText, SearchIndex
from perdure._stores.sqlite.search.log_reader import LogReaderForSearch
from perdure.events import RunStarted
from perdure.stores import SearchableStore, SqliteStore
from tests.doubles import until
from tests.seeds import chance
from tests.stores.search_material import found, keep, lines, logged, places, said

# -- what is found -----------------------------------------------------------------------------------------------------


async def test_a_hit_tells_where_who_when_and_what(store: SqliteStore):
    assert isinstance(store, SearchableStore)
    await keep(store, "s", "Deploy it to Oslo, please.", said("Deployed to Oslo.", "assistant"), said("exit 0", "tool"))
    (hit,) = await store.search("deployed")
    assert (hit.session_id, hit.seq, hit.role, hit.at) == ("s", 2, "assistant", 1002.0)
    assert hit.snippet == "«Deployed» to Oslo."
    assert hit.score > 0


async def test_what_tools_say_is_found_too(store):
    await keep(store, "s", said("Traceback: KeyError in line 7", "tool"))
    assert await found(store, "keyerror") == [("s", 1)]


async def test_every_word_must_occur_in_any_order(store):
    await keep(store, "s", "red green blue", "green and red", "red alone", "blue green")
    assert await found(store, "green red") == [("s", 1), ("s", 2)]


async def test_words_are_whole_and_neither_case_nor_accents_count(store):
    await keep(store, "s", "Ein Café in ZÜRICH", "cafeteria")
    assert await found(store, "cafe zurich") == [("s", 1)]
    assert await found(store, "CAFÉ") == [("s", 1)]


async def test_a_word_with_signs_in_it_is_looked_for_as_it_stands(store):
    await keep(store, "s", "see src/main.py:42", "main, py and src", "don't panic", "don and t")
    assert await found(store, "src/main.py") == [("s", 1)]
    assert await found(store, "don't") == [("s", 3)]


HOSTILE = """
" | a AND | NOT b | a OR b | NEAR(a b) | text:a | a* | ^a | (a | a) -- | '; DROP TABLE doc | ""a"" | a\0b | \ud800 a
{a} | -a | a + b | % | 1e999 | 日本 | \u202ea
"""


@pytest.mark.parametrize("query", [*HOSTILE.strip().replace("\n", " | ").split(" | "), "a" * 4000])
async def test_plain_words_are_data_whatever_is_in_them(store, query):
    await keep(store, "s", "unrelated")
    try:
        assert await store.search(query) == []
    except ConfigError as error:
        assert "only signs" in str(error)  # noqa: PT017 - some have no word in them
    await keep(store, "t", query, "and " + query)
    try:
        assert await found(store, query, session_id="t") == [("t", 1), ("t", 2)]
    except ConfigError as error:
        assert "only signs" in str(error)  # noqa: PT017 - as above


async def test_the_best_hits_come_first_and_of_equals_the_latest(store):
    long = " ".join(["filler"] * 200)
    await keep(store, "s", f"rain {long}", "rain rain rain", "some rain", "some rain")
    hits = await store.search("rain")
    assert places(hits) == [("s", 2), ("s", 4), ("s", 3), ("s", 1)]
    assert [hit.score for hit in hits] == sorted([hit.score for hit in hits], reverse=True)


async def test_hits_come_in_pages(store):
    await keep(store, "s", *[f"rain {'x ' * number}" for number in range(1, 8)])
    everything = places(await store.search("rain"))
    assert len(everything) == 7
    assert [places(await store.search("rain", limit=3, offset=offset)) for offset in (0, 3, 6, 9)] == [
        everything[:3],
        everything[3:6],
        everything[6:],
        [],
    ]


async def test_a_long_text_is_told_by_the_words_around_the_hit(store):
    filler = " ".join(f"w{number}" for number in range(3000))
    await keep(store, "s", f"{filler}\nthe \x1b[31mneedle\x07 is\there {filler}")
    (hit,) = await store.search("needle")
    assert "w2999 the «needle» is here w0" in hit.snippet
    assert hit.snippet.startswith("…")
    assert len(hit.snippet.split()) < 25


async def test_very_long_texts_are_found_to_their_end(store):
    await keep(store, "s", said("x " * 300_000 + "needle", "tool"))
    (hit,) = await store.search("needle")
    assert "«needle»" in hit.snippet


# -- narrowed ----------------------------------------------------------------------------------------------------------


async def test_a_search_is_narrowed_by_session_role_and_time(store):
    await keep(store, "team-a", "rain", said("rain", "assistant"), said("rain", "tool"), at=1000)
    await keep(store, "team-b", "rain", at=2000)
    await keep(store, "other", "rain", at=3000)
    assert len(await found(store, "rain")) == 5
    assert await found(store, "rain", session_id="team-b") == [("team-b", 1)]
    assert await found(store, "rain", session_id="nobody") == []
    assert await found(store, "rain", prefix="team-") == [("team-a", 1), ("team-a", 2), ("team-a", 3), ("team-b", 1)]
    assert await found(store, "rain", prefix="team_") == []
    assert await found(store, "rain", prefix="team-a", session_id="team-b") == []
    assert await found(store, "rain", role="tool") == [("team-a", 3)]
    assert await found(store, "rain", since=2001, until=2001) == [("team-b", 1)]
    assert await found(store, "rain", since=1002, until=2500, prefix="team-a", role="assistant") == [("team-a", 2)]


async def test_what_cannot_be_narrowed_to_is_refused(store):
    with pytest.raises(ConfigError, match="limit=101"):
        await store.search("rain", limit=101)
    with pytest.raises(ConfigError, match="role='system'"):
        await store.search("rain", role="system")
    with pytest.raises(ConfigError, match="only signs"):
        await store.search("?! --")


# -- the query language ------------------------------------------------------------------------------------------------


async def test_a_query_may_say_more_than_words(store):
    await keep(store, "s", "the exit code was 1", "code: exit", "timeouts happen", "nothing of that")
    assert await found(store, '"exit code" OR timeout*', syntax="query") == [("s", 1), ("s", 3)]
    assert await found(store, "exit NOT was", syntax="query") == [("s", 2)]
    (hit,) = await store.search("timeout* NOT (exit)", syntax="query")
    assert hit.snippet == "«timeouts» happen"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("rain AND", 'syntax error near ""'),
        ('"rain', "unterminated string"),
        ("title:rain", "no such column: title"),
        ("(" * 300, "parser stack overflow"),
        ("*", "unknown special query"),
    ],
)
async def test_a_query_that_is_not_understood_is_shown_with_the_reason(store, query, reason):
    await keep(store, "s", "rain")
    with pytest.raises(ConfigError) as caught:
        await store.search(query, syntax="query")
    assert repr(query) in str(caught.value)
    assert reason in str(caught.value)
    assert await found(store, "rain") == [("s", 1)]


# -- forks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def forked(store):
    """A session of three entries, a fork that shares two of them, and a fork of that one which shares all of it."""
    await keep(store, "root", "rain one", "rain two", "rain three")
    await store.fork("root", "branch", at=2)
    await keep(store, "branch", "rain more", first=3)
    await store.fork("branch", "twig")
    return store


async def test_what_forks_share_is_found_once(forked):
    assert await found(forked, "rain") == [("branch", 3), ("root", 1), ("root", 2), ("root", 3)]


async def test_within_a_fork_what_it_shares_is_its_own(forked):
    assert await found(forked, "rain", session_id="branch") == [("branch", 1), ("branch", 2), ("branch", 3)]
    assert await found(forked, "rain", session_id="twig") == [("twig", 1), ("twig", 2), ("twig", 3)]
    assert await found(forked, "rain", prefix="twi") == [("twig", 1), ("twig", 2), ("twig", 3)]
    assert await found(forked, "rain", session_id="root") == [("root", 1), ("root", 2), ("root", 3)]


async def test_what_outlives_its_session_is_found_under_a_fork(forked):
    await forked.delete("root")
    assert await found(forked, "rain") == [("branch", 1), ("branch", 2), ("branch", 3)]
    await forked.delete("branch")
    assert await found(forked, "rain") == [("twig", 1), ("twig", 2), ("twig", 3)]
    await forked.delete("twig")
    assert await found(forked, "rain") == []


# -- what is gone ------------------------------------------------------------------------------------------------------


def bytes_beside(path) -> bytes:
    """All that lies on the disk for a store."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.iterdir()) if file.name.startswith(path.name))


async def test_a_deleted_session_leaves_nothing_in_the_index(path, store):
    await keep(store, "kept", *lines(60, "kept"))
    await keep(store, "gone", *lines(60, "xyzzyword"))
    assert len(await store.search("xyzzyword", limit=100)) == 54
    assert b"xyzzyword" in bytes_beside(path)
    await store.delete("gone")
    assert await store.search("xyzzyword") == []
    assert b"xyzzyword" not in bytes_beside(path)
    assert len(await store.search("kept", limit=100)) == 54


async def test_what_was_kept_for_a_fork_alone_leaves_the_index_with_it(path, store):
    await keep(store, "kept", *lines(60, "kept"))
    await keep(store, "root", *lines(60, "xyzzyword"))
    await store.fork("root", "branch")
    await keep(store, "branch", "plughword", first=61)
    await store.fork("branch", "twig")
    for name in ("root", "branch", "twig"):
        assert len(await store.search("xyzzyword", limit=100)) == 54
        assert len(await store.search("plughword")) == 1
        await store.delete(name)
    there = bytes_beside(path)
    assert b"xyzzyword" not in there
    assert b"plughword" not in there
    assert await store.search("xyzzyword") == []
    assert len(await store.search("kept", limit=100)) == 54


async def test_a_session_that_is_larger_than_all_others_leaves_nothing_in_the_index(path, store):
    """FTS5 then merges below empty levels, and would keep the words of what was removed."""
    sizes = {"kept": 300, "small": 3, "other": 3, "large": 1000}
    words = {name: [sha256(f"{name} {number}".encode()).hexdigest() for number in range(sizes[name])] for name in sizes}
    for name, each in words.items():
        await keep(store, name, *each)
        assert await found(store, each[-1]) == [(name, len(each))]
        if name != "kept":
            await store.delete(name)
            there = bytes_beside(path)
            assert [word for word in each if word[-20:].encode() in there] == []
    assert await found(store, words["kept"][0]) == [("kept", 1)]


@pytest.mark.parametrize("trial", range(5))
def test_no_word_of_a_removed_text_is_left_whatever_came_before(path, trial, monkeypatch):
    draw = chance("words of removed texts", trial)
    monkeypatch.setattr("perdure._stores.sqlite.search.index._SECURE_COST", draw.choice((10, 500)))  # in place, or not
    index, there, removed = SearchIndex(str(path)), dict[int, str](), list[str]()
    for step in range(25):
        if not there or draw.random() < 0.5:
            numbers = range(step * 100, step * 100 + draw.choice((1, 2, 5, 30)))
            added = {number: draw.randbytes(draw.choice((12, 20, 1500))).hex() for number in numbers}
            there |= added
            with index.write_transaction():
                index.add([IndexedText(1, number, 0, 1.0, word) for number, word in added.items()])
            continue
        gone = draw.sample(sorted(there), draw.choice((1, len(there) // 2 or 1, len(there))))
        with index.write_transaction():
            is_rewritten = index.remove([(1, number, there[number]) for number in gone])
        if is_rewritten:
            index.rewrite_pages()
        index.truncate_wal()
        removed += [there.pop(number) for number in gone]
        on_disk = bytes_beside(path)
        assert [word for word in removed if word[-20:].encode() in on_disk] == []
        asked = "SELECT rowid FROM search WHERE search MATCH :word"
        assert all(index.query(asked, {"word": word}) for word in there.values())
    index.close()


async def test_an_index_that_could_not_be_rewritten_is_rewritten_at_its_next_use(path, store, monkeypatch, caplog):
    await keep(store, "kept", "rain")
    await keep(store, "gone", *lines(60, "xyzzyword"))
    assert len(await store.search("xyzzyword", limit=100)) == 54

    def find_no_room(_index) -> None:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(SearchIndex, "rewrite_pages", find_no_room)
        with pytest.raises(
            StoreError, match=r"disk is full.*; the text has left the log, and leaves the index at its next"
        ):
            await store.delete("gone")
    assert b"xyzzyword" not in path.read_bytes() + path.with_name(f"{path.name}-wal").read_bytes()
    rewritten: list[str] = []
    rewrite_pages = SearchIndex.rewrite_pages

    def note_and_rewrite(index: SearchIndex) -> None:
        rewritten.append(index.path)
        rewrite_pages(index)

    monkeypatch.setattr(SearchIndex, "rewrite_pages", note_and_rewrite)
    monkeypatch.setattr("perdure._stores.sqlite.search.thread.QUIET_SECONDS", 0.0)
    assert await found(store, "rain") == [("kept", 1)]
    await until(lambda: rewritten == [f"{path}-search"])
    await store.aclose()
    assert all(b"xyzzyword" not in each.read_bytes() for each in path.parent.glob("*-search*"))
    assert caplog.messages == []  # it was not made anew


async def test_small_sessions_that_come_and_go_leave_nothing_in_the_index(path, store):
    for number in range(40):
        await keep(store, f"{number}", f"plugh{number}", f"xyzzyword{number}x")
        assert await found(store, f"plugh{number}") == [(f"{number}", 1)]
        if number % 3:
            await store.delete(f"{number}")
            assert f"xyzzyword{number}x".encode() not in bytes_beside(path)
    assert len(await found(store, "plugh39")) == 1


async def test_a_small_session_is_taken_out_in_its_place(path, store):
    await keep(store, "kept", *lines(2000))
    await keep(store, "gone", "plugh xyzzyword")
    assert await found(store, "plugh") == [("gone", 1)]
    await store.delete("gone")
    assert b"xyzzyword" not in bytes_beside(path)
    assert await found(store, "plugh") == []
    assert await found(store, "number1999") == [("kept", 1999)]


async def test_a_redacted_entry_is_found_by_what_stands_there_now(path, store):
    lease = await store.acquire("s")
    await store.append(lease, logged("the xyzzyword is plugh", "nothing"), sync=True)
    await store.fork("s", "fork")
    assert await found(store, "xyzzyword") == [("s", 1)]
    await store.redact(lease, logged("the password is hidden")[0])
    assert await found(store, "xyzzyword") == []
    assert await found(store, "hidden") == [("s", 1)]
    assert await found(store, "hidden", session_id="fork") == [("fork", 1)]
    assert b"xyzzyword" not in bytes_beside(path)


async def test_what_was_never_indexed_can_be_deleted_and_redacted(path, store):
    lease = await store.acquire("s")
    await store.append(lease, logged("xyzzyword", "nothing"), sync=True)
    await store.redact(lease, logged("hidden")[0])
    await store.release(lease)
    await store.delete("s")
    await store.delete("s")
    assert await store.search("hidden") == []
    assert b"xyzzyword" not in bytes_beside(path)


async def test_a_session_that_is_driven_stays_in_the_index(store):
    lease = await store.acquire("s")
    await store.append(lease, logged("rain"), sync=False)
    assert await found(store, "rain") == [("s", 1)]
    with pytest.raises(SessionBusy):
        await store.delete("s")
    assert await found(store, "rain") == [("s", 1)]


async def test_a_session_made_anew_under_an_old_name_is_searched_anew(store):
    await keep(store, "s", "old words", "old words")
    await store.search("old")
    await store.delete("s")
    await keep(store, "s", "new words")
    assert await found(store, "words") == [("s", 1)]
    assert await found(store, "old") == []


# -- upkeep ------------------------------------------------------------------------------------------------------------


async def test_the_size_of_a_store_tells_that_of_its_index(path, store):
    await keep(store, "s", *lines(100))
    await store.vacuum()
    assert (await store.size()).search_bytes == 0
    await store.search("line")
    before = await store.size()
    beside = [file for file in path.parent.iterdir() if file.name.startswith(f"{path.name}-search")]
    assert before.search_bytes == sum(file.stat().st_size for file in beside) > 0
    await store.vacuum()
    assert 0 < (await store.size()).search_bytes <= before.search_bytes
    assert await found(store, "number7") == [("s", 7)]


async def test_vacuum_gives_back_what_the_index_does_not_need_any_more(store):
    await keep(store, "kept", *lines(600))
    await keep(store, "gone", " ".join(f"word{number}" for number in range(5000)))
    await store.search("word1")
    await store.delete("gone")  # in its place
    before = await store.size()
    await store.vacuum()
    assert (await store.size()).search_bytes < before.search_bytes
    assert await found(store, "number599") == [("kept", 599)]


async def test_an_index_gives_back_its_space_when_most_of_it_is_deleted(store):
    await keep(store, "kept", "rain")
    await keep(store, "gone", *[f"line {number} " + "words of all kinds " * 50 for number in range(400)])
    await store.search("rain")
    before = await store.size()
    await store.delete("gone")
    assert (await store.size()).search_bytes < before.search_bytes / 2
    assert await found(store, "rain") == [("kept", 1)]


async def test_a_log_that_is_read_no_more_has_no_open_connection(tmp_path):
    path = str(tmp_path / "sessions.db")
    store = SqliteStore(path)
    await keep(store, "s", said("one"))
    await store.aclose()
    written: Future[None] = Future()
    written.set_result(None)
    log = LogReaderForSearch(path, None, lambda *_, **__: written)
    assert log.read_stamp_and_backlog()[1] >= 0
    connection = log._connection
    assert connection is not None
    log.close()
    log.close()  # which does nothing more
    assert log._connection is None
    with pytest.raises(apsw.ConnectionClosedError):
        connection.execute("SELECT 1")


async def test_an_entry_that_says_nothing_has_no_text_whatever_was_said_before_it(tmp_path):
    path = str(tmp_path / "sessions.db")
    store = SqliteStore(path)
    await keep(store, "s", "one", RunStarted(), RunStarted(), "four")
    await store.aclose()
    written: Future[None] = Future()
    written.set_result(None)
    log = LogReaderForSearch(path, None, lambda *_, **__: written)
    [(session, _, _)] = log.find_unindexed(5)
    assert [log.read_text_and_owner(session, seq) for seq in range(1, 5)] == [
        ("one", "s"),
        (None, "s"),
        (None, "s"),
        ("four", "s"),
    ]
    assert log.read_text_and_owner(session, 5) == (None, None)
    log.close()


async def test_an_entry_whose_text_was_redacted_away_is_not_found_by_the_text_before_it(path, store):
    lease = await store.acquire("s")
    await store.append(lease, logged("xyzzyword", "xyzzyword"), sync=True)
    assert await found(store, "xyzzyword") == [("s", 1), ("s", 2)]
    await store.redact(lease, logged(RunStarted(), first=2)[0])
    assert await found(store, "xyzzyword") == [("s", 1)]
