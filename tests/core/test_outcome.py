"""How an outcome is printed. How runs end is in `test_loop.py`."""

import pytest

from perdure import Agent, Budget, Price, tool
from perdure.core.event import QuestionAsked
from perdure.core.message import Usage, assistant, user
from perdure.core.outcome import SHOWN, Outcome
from perdure.stores.memory import MemoryStore
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
