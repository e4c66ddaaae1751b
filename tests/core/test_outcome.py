"""How an outcome is printed. How runs end is in `test_loop.py`."""

from typing import Any

import pytest

from perdure import (
    Agent,
    Budget,
    Outcome,
    RunStep,
    ToolCall,
    ToolCallRecord,
    ToolResult,
    Usage,
    UsageError,
    assistant,
    tool,
    user,
)
from perdure._core.run.outcome import SHOWN
from perdure.events import (
    Custom,
    Entry,
    MessageAdded,
    ModelRequested,
    QuestionAsked,
    RunEnded,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from perdure.models import Price
from perdure.stores import MemoryStore
from perdure.testing import Reply, ScriptedModel, call


def outcome(**fields):
    """An outcome of a long conversation."""
    messages = [user("Where? " * 500), assistant("There. " * 500)] * 50
    usage = Usage(input_tokens=1200, output_tokens=34)
    given = {"messages": messages, "new_messages": messages[:2], "usage": usage, "turns": 3, "session_id": "s"}
    return Outcome(**{"status": "done", "text": "There. " * 500, **given, **fields})


def test_printing_an_outcome_takes_a_few_lines_however_long_the_conversation():
    shown = str(outcome())
    assert shown == repr(outcome())
    assert shown.startswith("Outcome(status='done', text='There. There. ")
    end = "…, turns=3, messages=<2 new of 100>, usage=<1200 tokens in, 34 out>, session_id='s')"
    assert shown.endswith(end)
    assert "\n" not in shown
    assert len(shown) < 2 * SHOWN


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"status": "limit", "reason": "max_turns"}, "status='limit', reason='max_turns', "),
        ({"output": {"city": "Oslo"}}, "output={'city': 'Oslo'}, "),
        ({"text": "two\nlines"}, r"text='two\nlines', "),
        ({"status": "failed", "error": ValueError("x" * 1000)}, "error=ValueError('xxx"),
        ({"status": "waiting", "questions": (QuestionAsked("a", "slot", "May I?"),)}, "questions=<1 open>, "),
        ({"cost_usd": 0.0125}, "cost_usd=0.0125, "),
    ],
)
def test_an_outcome_shows_how_it_ended(fields, part):
    shown = repr(outcome(**fields))
    assert part in shown
    assert len(shown) < 3 * SHOWN


def test_an_output_is_shown_instead_of_the_text():
    assert "text=" not in repr(outcome(output=42))


def test_an_output_that_cannot_be_shown_does_no_harm():
    class Broken:
        def __repr__(self):
            raise RuntimeError

    assert "Broken whose repr fails" in repr(outcome(output=Broken()))


def test_rich_is_given_the_same_fields():
    (status, text, *_), whole = list(outcome().__rich_repr__()), repr(outcome())
    assert (status[0], repr(status[1]), text[0]) == ("status", "'done'", "text")
    assert whole == f"Outcome({', '.join([f'{name}={shown!r}' for name, shown in outcome().__rich_repr__()])})"


async def test_the_outcome_of_a_run_is_short():
    ended = await Agent(ScriptedModel("Yes. " * 1000)).run("Is it? " * 1000)
    assert len(str(ended)) < 2 * SHOWN


def test_an_outcome_without_an_answer_or_a_session_shows_neither():
    shown = repr(Outcome(status="cancelled"))
    assert "text=" not in shown
    assert "session_id=" not in shown


# -- reported costs ----------------------------------------------------------------------------------------------------


@tool
async def look() -> str:
    """Look."""
    return "seen"


PRICE = Price(input_usd=1.0, output_usd=10.0)
REPORTED = Usage(1_000_000, reported_usd=0.25)
COUNTED = Usage(1_000_000)


@pytest.mark.parametrize(
    ("price", "usages", "cost", "reported"),
    [
        (PRICE, [REPORTED, REPORTED], 0.5, True),
        (PRICE, [REPORTED, COUNTED], 1.25, False),
        (PRICE, [COUNTED, COUNTED], 2.0, False),
        (None, [REPORTED, REPORTED], 0.5, True),
        (None, [REPORTED, COUNTED], None, False),
        (None, [COUNTED, COUNTED], None, False),
    ],
)
async def test_the_cost_that_the_provider_reports_wins_and_is_marked(price, usages, cost, reported):
    replies = [Reply(calls=[call("look")], usage=usages[0]), Reply("Seen.", usage=usages[1])]
    model = ScriptedModel(*replies, price=price)
    budget = Budget(token_budget=10**9)
    outcome = await Agent(model, tools=[look], budget=budget).run("Look.")
    assert outcome.cost_usd == cost
    assert outcome.is_cost_reported is reported
    assert [each.usage for each in outcome.messages if each.role == "assistant"] == usages
    expected = cost if cost is not None else sum(each.reported_usd or 0.0 for each in usages)
    assert budget.spent_usd == pytest.approx(expected)


async def test_a_stored_run_still_says_that_its_cost_was_reported():
    store = MemoryStore()
    session = Agent(ScriptedModel(Reply("Seen.", usage=REPORTED)), store=store).session("s")
    outcome = await session.run("Look.", input_id="one")
    again = await session.run("Look.", input_id="one")
    assert (again.cost_usd, again.is_cost_reported) == (outcome.cost_usd, True) == (0.25, True)


# -- what an outcome is asked for --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["done", "stopped"])
def test_an_outcome_of_a_run_that_completed_is_itself(status: Any) -> None:
    ended = Outcome[int](status=status, output=5)
    assert ended.unwrap() is ended
    assert ended.value == 5


@pytest.mark.parametrize("status", ["limit", "waiting", "cancelled", "failed", "parked"])
def test_an_outcome_of_a_run_that_did_not_complete_raises(status: Any) -> None:
    for reason, words in (("max_turns", "max_turns"), ("", "no reason given")):
        ended = Outcome[int](status=status, reason=reason)
        for ask in (ended.unwrap, lambda ended=ended: ended.value):
            with pytest.raises(UsageError) as raised:
                ask()
            assert str(raised.value) == f"the run ended with status {status!r} ({words})"


def test_an_outcome_of_a_run_that_failed_raises_its_error() -> None:
    error = ValueError("no luck")
    ended = Outcome[int](status="failed", error=error)
    for ask in (ended.unwrap, lambda: ended.value):
        with pytest.raises(ValueError, match="no luck") as raised:
            ask()
        assert raised.value is error


@pytest.mark.parametrize(("reason", "how"), [("", "'done'"), ("budget", "'done', budget")])
def test_an_outcome_without_an_output_says_how_to_get_one(reason: str, how: str) -> None:
    with pytest.raises(UsageError) as raised:
        _ = Outcome[int](status="done", reason=reason).value
    assert str(raised.value) == (
        f"this run has no output (it ended as {how}): was it given a type, as in run(…, output=Plan)?"
    )


def test_an_outcome_knows_when_its_run_began_and_ended() -> None:
    noted, began, ended = Entry(1, 4.0, Custom("x")), Entry(2, 5.0, RunStarted()), Entry(3, 9.0, RunEnded("done"))

    def times(*entries: Entry) -> tuple[float, float]:
        run = Outcome[Any](status="done", entries=entries)
        return run.started_at, run.finished_at

    assert times() == (0.0, 0.0)
    assert times(noted) == (0.0, 0.0)
    assert times(noted, began) == (5.0, 0.0)
    assert times(noted, began, ended) == (5.0, 9.0)


def test_an_outcome_lists_the_calls_of_all_its_turns() -> None:
    calls = [ToolCall("a", "look"), ToolCall("b", "look", "{}")]
    result = ToolResult("a", "look", ())
    entries = [
        Entry(1, 1.0, ModelRequested(1, model="m")),
        Entry(2, 2.0, MessageAdded(assistant([calls[0]]))),
        Entry(3, 3.0, ToolStarted("a", "look", "read", "", "key", 1)),
        Entry(4, 4.0, ToolStarted("a", "look", "read", "", "key", 2)),
        Entry(5, 5.0, ToolFinished("a", "look", result, duration_seconds=1.5)),
        Entry(6, 6.0, ModelRequested(2, model="m")),
        Entry(7, 7.0, MessageAdded(assistant([calls[1]]))),
    ]
    run = Outcome[Any](status="done", entries=entries)
    records = [
        ToolCallRecord(
            call_id="a", name="look", arguments=calls[0].arguments, result=result, started_at=3.0, finished_at=5.0,
            duration_seconds=1.5,
        ),
        ToolCallRecord(call_id="b", name="look", arguments="{}"),
    ]  # fmt: skip
    assert run.tool_calls == records
    assert run.steps == [
        RunStep(
            turn=1, model="m", requested_at=1.0, replied_at=2.0, reply=assistant([calls[0]]), tool_calls=(records[0],)
        ),
        RunStep(
            turn=2, model="m", requested_at=6.0, replied_at=7.0, reply=assistant([calls[1]]), tool_calls=(records[1],)
        ),
    ]


@pytest.mark.parametrize(
    ("cost", "reported", "expected"), [(None, None, False), (0.5, None, False), (0.0, 0.0, True), (None, 0.5, False)]
)
def test_a_cost_is_reported_if_the_provider_said_it(cost: float | None, reported: float | None, expected: bool) -> None:
    assert Outcome[Any](status="done", cost_usd=cost, usage=Usage(reported_usd=reported)).is_cost_reported is expected
