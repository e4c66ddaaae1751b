"""Rows that were merged from those of many appends: what is read of them is what was appended."""

from random import Random

import pytest

from perdure import (
    Agent,
    BadRequest,
    Limits,
    PerdureError,
    ProviderDown,
    StoreError,
    ToolOutput,
    Usage,
    assistant,
    tool,
    user,
)
from perdure._core.log.fold import fold_events
from perdure._stores.sqlite.format import merging
from perdure._stores.sqlite.format.rows import PackRow, decode_row_entries, decode_row_events, encode_row, merge_rows
from perdure.engines import fold_entries
from perdure.events import Entry, Event, MessageAdded, ModelRequested, RunEnded, RunStarted, Unknown
from perdure.models import Price
from perdure.testing import FakeClock, Reply, ScriptedModel, call
from tests.random_log import RandomLog, describe_state
from tests.stores.material import another_connection


def no_text(digest: bytes) -> bytes:
    raise AssertionError(digest)


def number(events: list[Event], first: int = 1) -> list[Entry]:
    return [Entry(seq, float(seq), event, f"w-{seq}") for seq, event in enumerate(events, first)]


def merged(events: list[Event], first: int = 1, size: int = 7) -> PackRow:
    """One row, as it is merged from those of several appends."""
    entries = number(events, first)
    parts = [entries[place : place + size] for place in range(0, len(entries), size)]
    return merge_rows([encode_row(part, [entry.id for entry in part])[0] for part in parts])


def read_events(row: PackRow) -> list[Event]:
    return decode_row_events(row, 0, 1_000_000, no_text, "s")


def usual_runs(count: int, *, text: str = "Hi") -> list[Event]:
    events: list[Event] = []
    for run_id in [f"run-{place}" for place in range(count)]:
        events += [
            RunStarted("agent", run_id=run_id),
            MessageAdded(user(text), run_id=run_id),
            ModelRequested(1, run_id=run_id),
            MessageAdded(assistant("Hello.", usage=Usage(3, 2)), run_id=run_id),
            RunEnded("done", usage=Usage(3, 2), cost_usd=0.1, turns=1, run_id=run_id),
        ]
    return events


@pytest.mark.parametrize("seed", range(10))
def test_a_random_log_in_rows_is_read_as_it_was_appended(seed):
    log = RandomLog(f"rows {seed}")
    events = log.make(20, strangeness=(seed % 6) / 8)
    if seed % 5 == 4:
        events = log.damage(events)
    rows: list[PackRow] = []
    while sum(row.last + 1 - row.first for row in rows) < len(events):
        first = rows[-1].last if rows else 0
        rows.append(merged(events[first : first + log.chance.randrange(2, 90)], first + 1))
    assert [each for row in rows for each in read_events(row)] == events
    assert [each for row in rows for each in decode_row_entries(row, 0, 1_000_000, no_text, "s")] == number(events)


def test_events_of_an_older_version_are_not_guessed_at():
    with pytest.raises(PerdureError, match="upgrade perdure"):
        read_events(merged(usual_runs(6))._replace(version=0))


def test_a_kind_of_event_that_is_not_known_is_kept_between_the_others():
    events = [*usual_runs(2), Unknown("from_later", {"kind": "from_later", "a": 1}), *usual_runs(2)]
    assert read_events(merged(events)) == events


def test_a_row_with_a_number_that_only_json_can_have_is_merged_as_json():
    events = [*usual_runs(4), MessageAdded(user("Hi", metadata={"number": 10**30}))]
    row = merged(events)
    assert row.body[:1] == b"["
    assert read_events(row)[:-1] == events[:-1]


@pytest.mark.parametrize("runs", [2, 6])
def test_a_row_that_is_not_as_long_as_it_says_is_damaged(runs):
    row = merged(usual_runs(runs))
    for number_of_last in (1, row.last - 1, row.last + 1):
        with pytest.raises(StoreError, match="is damaged"):
            read_events(row._replace(last=number_of_last))


# -- in a file ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def filled(store, monkeypatch):
    """A store with a session of a few large rows."""
    monkeypatch.setattr(merging, "MERGED_ROW_BYTES", 6_000)
    lease = await store.acquire("s")
    entries = number(usual_runs(60, text="Hello there."))
    for place in range(0, len(entries), 5):
        await store.append(lease, entries[place : place + 5], sync=False)
    await store.release(lease)
    return store


def list_rows(path) -> list[tuple[int, int]]:
    with another_connection(path) as connection:
        return connection.execute("SELECT first, last FROM pack ORDER BY last").fetchall()


async def test_a_session_is_read_from_its_merged_rows(filled, path):
    events = usual_runs(60, text="Hello there.")
    assert len(list_rows(path)) < 20
    for after in (0, 17, 299):
        assert await filled.events("s", after=after) == (events[after:], 300)
    for at in (300, 137, 1):
        await filled.fork("s", f"fork-{at}", at=at)
        assert await filled.events(f"fork-{at}") == (events[:at], at)


async def test_an_erased_entry_is_a_row_of_its_own(filled, path):
    lease = await filled.acquire("s")
    await filled.redact(lease, Entry(7, 7.0, MessageAdded(user("[erased]"), run_id="run-1"), "w-7"))
    await filled.release(lease)
    state = fold_events((await filled.events("s"))[0])
    assert [each.text for each in state.messages[:4]] == ["Hello there.", "Hello.", "[erased]", "Hello."]
    assert (len(state.messages), state.total_usage, state.total_turns) == (120, Usage(180, 120), 60)
    assert list_rows(path)[:2] == [(1, 6), (7, 7)]


# -- by an agent -------------------------------------------------------------------------------------------------------


@tool(effect="read")
async def look(n: int) -> str:
    """Look."""
    if n == 3:
        raise ValueError("nothing there")
    return f"seen {n} “世界”"


@tool
async def hide(n: int) -> ToolOutput:
    """Hide."""
    return ToolOutput("hidden", labels=("private",) if n == 3 else (), summary="short")


def write_reply(chance: Random) -> Reply | Exception:
    """What a model may reply: calls, a text, or an error."""
    if chance.random() < 0.05:
        return chance.choice([ProviderDown("down"), BadRequest("bad")])
    usage = chance.choice([None, Usage(5, 2, 1), Usage(7, precision="estimated")])
    names = [chance.choice(["look", "look", "hide", "no_such_tool"]) for _ in range(chance.choice([0, 0, 1, 3]))]
    asked = [call(name, n=chance.randrange(4)) for name in names]
    return Reply(text="I think." if chance.random() < 0.5 or not asked else "", calls=asked, usage=usage)


@pytest.mark.parametrize("seed", [1, 2])
async def test_what_an_agent_has_done_is_the_same_by_its_events_and_by_its_entries(seed, store, monkeypatch):
    monkeypatch.setattr(merging, "MERGED_ROW_BYTES", 4_000)
    chance = Random(seed)
    model = ScriptedModel(lambda _: write_reply(chance), price=Price(input_usd=1.0, output_usd=2.0), repeat_last=True)
    agent = Agent(
        model, tools=[look, hide], store=store, limits=Limits(max_turns=4), clock=FakeClock(auto=True), name="agent"
    )
    for number_of_run in range(30):
        input_id = f"input-{chance.randrange(20)}" if number_of_run % 2 else ""
        await agent.session("s").run("Hello", input_id=input_id)
    state = fold_events((await store.events("s"))[0])
    assert describe_state(state) == describe_state(fold_entries(await store.read("s")))
    ends = [run.run_ended_event for run in state.runs_by_input_id.values()]
    assert {"done", "limit"} <= {ended.status for ended in ends if ended is not None}
