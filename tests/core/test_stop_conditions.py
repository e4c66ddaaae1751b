"""When a run ends: limits, conditions, guardrails."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import ConfigError, Limits, Status, ToolCall, ToolResult, assistant, tool_message, user
from perdure._core.run.stop import GUARDRAILS, call_guardrails, evaluate_condition, evaluate_guardrails, rebuild_steps
from perdure.engines import (
    Halt,
    Nudge,
    Step,
    all_of,
    any_of,
    max_turns,
    mistakes,
    none_of,
    repeated_calls,
    when_tool_called,
)


def step(*calls, turn=1, statuses=()):
    """A turn with these calls, `("shell", '{}')`, which ended well unless their statuses say otherwise."""
    made = [ToolCall(f"call_{place}", name, arguments) for place, (name, arguments) in enumerate(calls)]
    ended = [*statuses, *[Status.OK] * (len(made) - len(statuses))]
    results = [ToolResult(call.call_id, call.name, status=status) for call, status in zip(made, ended, strict=True)]
    return Step(turn, assistant(made), made, results, ())


def yes(_):
    return True


def no(_):
    return False


async def later_yes(_):
    return 1


async def later_no(_):
    return None


def test_the_turns_of_a_run_that_is_resumed_have_their_own_results_and_what_came_before():
    calls = [[ToolCall(f"c{number}", "look", "{}")] for number in range(3)]
    messages = [user("Earlier."), assistant(calls[0]), tool_message([ToolResult("c0", "look")]), assistant("Done.")]
    first = len(messages)
    messages += [user("Go."), assistant(calls[1]), tool_message([ToolResult("c1", "look", status=Status.ERROR)])]
    messages += [assistant("Hm."), user("On."), assistant(calls[2]), tool_message([ToolResult("c2", "look")])]
    steps = rebuild_steps(messages, first)
    assert [(each.turn, [result.call_id for result in each.results]) for each in steps] == [(1, ["c1"]), (3, ["c2"])]
    assert [list(each.messages) for each in steps] == [messages[:7], messages]
    assert [list(each.calls) for each in steps] == calls[1:]


# -- limits ------------------------------------------------------------------------------------------------------------

COUNTS = ["max_turns", "token_budget", "max_tool_calls", "max_calls_per_reply", "max_parallel_tools"]
AMOUNTS = ["max_cost_usd", "timeout_seconds", "tool_timeout_seconds"]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 1.5, "5", True, math.nan])
def test_a_count_is_a_whole_number_above_zero(name, value):
    with pytest.raises(ConfigError, match=rf"Limits\({name}=.*\): give a whole number above zero"):
        Limits(**{name: value})


@pytest.mark.parametrize("name", AMOUNTS)
@pytest.mark.parametrize("value", [0, -0.5, "5", True, math.nan])
def test_time_and_money_are_numbers_above_zero(name, value):
    with pytest.raises(ConfigError, match=rf"Limits\({name}=.*\): give a number above zero, or None for no limit"):
        Limits(**{name: value})


@pytest.mark.parametrize("name", [*COUNTS[:-1], *AMOUNTS])
def test_none_is_no_limit(name):
    given: Any = {name: None}
    assert getattr(Limits(**given), name) is None


def test_calls_at_the_same_time_always_have_a_limit():
    given: Any = {"max_parallel_tools": None}
    with pytest.raises(ConfigError, match=r"give a whole number above zero$"):
        Limits(**given)


@pytest.mark.parametrize("names", ["shell", 5, ("shell", 5), {"shell": 1}])
def test_allowed_tools_are_names(names):
    with pytest.raises(ConfigError, match=r"allowed_tools=.*give the names of tools"):
        Limits(allowed_tools=names)


@given(
    st.builds(
        Limits,
        max_turns=st.none() | st.integers(1, 2**53),
        token_budget=st.none() | st.integers(1, 2**53),
        max_cost_usd=st.none() | st.floats(0, 1e6, exclude_min=True),
        timeout_seconds=st.none() | st.integers(1, 9),
        max_tool_calls=st.none() | st.integers(1, 9),
        max_parallel_tools=st.integers(1, 99),
        allowed_tools=st.none() | st.lists(st.text(max_size=5), max_size=2).map(tuple),
    )
)
def test_limits_survive_json_so_that_a_run_can_be_resumed_with_them(limits):
    assert msgspec.convert(msgspec.to_builtins(limits), Limits) == limits


# -- conditions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("condition", "expected"), [(yes, True), (no, False), (later_yes, True), (later_no, False)])
async def test_a_condition_may_be_a_plain_or_an_async_function(condition, expected):
    assert await evaluate_condition(condition, step()) is expected


@pytest.mark.parametrize(("turn", "expected"), [(1, False), (2, False), (3, True), (4, True)])
async def test_a_number_of_turns_is_a_condition(turn, expected):
    assert await evaluate_condition(max_turns(3), step(turn=turn)) is expected


@pytest.mark.parametrize("status", Status)
async def test_a_tool_that_was_called_is_a_condition_however_the_call_ended(status):
    condition = when_tool_called("finish", "give_up")
    assert await evaluate_condition(condition, step(("shell", "{}"), ("give_up", "{}"), statuses=[Status.OK, status]))
    assert not await evaluate_condition(condition, step(("shell", "{}"), statuses=[status]))


@pytest.mark.parametrize(
    ("conditions", "any_holds", "all_hold"),
    [
        ([], False, False),
        ([yes], True, True),
        ([no], False, False),
        ([no, later_yes], True, False),
        ([later_yes, yes], True, True),
        ([later_no, no], False, False),
    ],
)
async def test_conditions_can_be_combined(conditions, any_holds, all_hold):
    assert await evaluate_condition(any_of(*conditions), step()) is any_holds
    assert await evaluate_condition(all_of(*conditions), step()) is all_hold
    assert await evaluate_condition(none_of(*conditions), step()) is not any_holds


@pytest.mark.parametrize(("combined", "first"), [(any_of, yes), (none_of, yes), (all_of, no)])
async def test_a_condition_that_decides_nothing_any_more_is_not_asked(combined, first):
    asked: list[Step] = []
    await evaluate_condition(combined(first, asked.append), step())
    assert asked == []


@given(st.recursive(st.sampled_from([yes, no]), lambda inner: st.lists(inner, max_size=3), max_leaves=8))
def test_combinations_follow_the_laws_of_logic(tree):
    def build(node):
        return any_of(*map(build, node)) if isinstance(node, list) else node

    def value(node):
        return any(map(value, node)) if isinstance(node, list) else node is yes

    assert run(evaluate_condition(build(tree), step())) is value(tree)
    assert run(evaluate_condition(none_of(build(tree)), step())) is not value(tree)


def run(coroutine):
    """The result of a coroutine that never waits."""
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    return stop.value.value


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (max_turns, [0], r"max_turns\(0\): give a whole number above zero"),
        (max_turns, ["3"], r"max_turns\('3'\): give a whole number above zero"),
        (when_tool_called, [], r"when_tool_called\(\): give the name of at least one tool"),
        (when_tool_called, ["a", len], r"when_tool_called\('a', <built-in .*>\): give the name"),
        (any_of, ["shell"], r"any_of\('shell'\): give conditions"),
        (all_of, [yes, True], r"all_of\(True\): give conditions"),
        (none_of, [None], r"none_of\(None\): give conditions"),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused(make, given, message):
    with pytest.raises(ConfigError, match=message):
        make(*given)


# -- guardrails --------------------------------------------------------------------------------------------------------


def verdicts(guardrail, steps):
    return [verdict and (type(verdict), verdict.count) for verdict in map(guardrail, steps)]


SAME = step(("shell", '{"command": "ls"}'))


def test_the_same_call_over_and_over_is_a_word_to_the_model_and_then_the_end():
    guardrail = repeated_calls()()
    assert verdicts(guardrail, [SAME] * 6) == [None, None, (Nudge, 3), None, (Halt, 5), (Halt, 6)]


def test_the_word_to_the_model_says_what_it_did():
    guardrail = repeated_calls(nudge_at=2, halt_at=3)()
    guardrail(SAME)
    nudge = guardrail(SAME)
    assert isinstance(nudge, Nudge)
    assert nudge.text.startswith("You have made the same call 2 times in a row.")


def test_blanks_in_the_arguments_make_no_other_call():
    variants = ['{"command":"ls"}', '{"command": "ls"}', '\n{ "command" :\t"ls" }']
    guardrail = repeated_calls()()
    assert verdicts(guardrail, [step(("shell", each)) for each in variants])[-1] == (Nudge, 3)


@pytest.mark.parametrize(
    "other",
    [
        step(("shell", '{"command":"pwd"}')),
        step(("other", '{"command":"ls"}')),
        step(("shell", '{"command":"ls"}'), ("shell", '{"command":"ls"}')),
    ],
    ids=["arguments", "tool", "several"],
)
def test_anything_else_in_between_breaks_the_row(other):
    guardrail = repeated_calls()()
    assert verdicts(guardrail, [SAME, SAME, other, SAME, SAME, SAME])[2:] == [None, None, None, (Nudge, 3)]


def test_turns_with_several_calls_are_no_repetition():
    several = step(("shell", "{}"), ("shell", "{}"))
    assert verdicts(repeated_calls(nudge_at=2, halt_at=3)(), [several] * 5) == [None] * 5


def test_a_call_without_a_name_can_be_repeated_too():
    assert verdicts(repeated_calls()(), [step(("", "{}"))] * 3)[-1] == (Nudge, 3)


def test_every_row_has_its_own_nudge():
    other = step(("other", "{}"))
    seen = verdicts(repeated_calls()(), [SAME, SAME, SAME, other, SAME, SAME, SAME])
    assert seen == [None, None, (Nudge, 3), None, None, None, (Nudge, 3)]


FAILED = step(("shell", "{}"), ("shell", "{}"), statuses=[Status.ERROR, Status.DENIED])
MIXED = step(("shell", "{}"), ("shell", "{}"), statuses=[Status.ERROR])


def test_turn_after_turn_in_which_everything_fails_is_a_word_and_then_the_end():
    guardrail = mistakes()()
    assert verdicts(guardrail, [FAILED] * 7) == [None, None, (Nudge, 3), None, None, (Halt, 6), (Halt, 7)]


def test_one_success_breaks_the_row_of_mistakes():
    assert verdicts(mistakes()(), [FAILED, FAILED, MIXED, FAILED, FAILED, FAILED]) == [None] * 5 + [(Nudge, 3)]


def test_mistakes_may_be_told_at_once():
    nudge = mistakes(nudge_at=1, halt_at=2)()(FAILED)
    assert isinstance(nudge, Nudge)
    assert nudge.text.startswith("Every call of the last 1 turns failed.")


def test_every_run_counts_for_itself():
    for start in GUARDRAILS:
        one, other = start(), start()
        for _ in range(2):
            one(SAME)
        assert other(SAME) is None
        assert one is not other


def test_the_guardrails_that_every_run_has_are_called_by_the_name_of_their_reason():
    assert [start().__name__ for start in GUARDRAILS] == ["repeat", "mistakes"]


@pytest.mark.parametrize("make", [repeated_calls, mistakes])
@pytest.mark.parametrize(("nudge_at", "halt_at"), [(0, 3), (3, 3), (5, 3), (-1, 3), ("2", 3), (2, None)])
def test_a_nudge_has_to_come_before_the_halt(make, nudge_at, halt_at):
    with pytest.raises(ConfigError, match=rf"{make.__name__}\(nudge_at=.*nudge_at has to be smaller than halt_at"):
        make(nudge_at=nudge_at, halt_at=halt_at)


def test_the_first_call_is_no_repetition():
    with pytest.raises(ConfigError, match="and at least 2"):
        repeated_calls(nudge_at=1)


async def test_each_guardrail_is_called_once_and_those_that_object_are_told():
    called: list[str] = []

    def content(_step):
        called.append("content")

    async def patient(_step):
        called.append("patient")

    def nudging(_step):
        called.append("nudging")
        return Nudge("Stop.", 2)

    async def halting(_step):
        called.append("halting")
        return Halt(3)

    last = step(("look", "{}"))
    assert call_guardrails([content, content], last) is None
    assert await evaluate_guardrails([], last) == []
    assert await evaluate_guardrails([content], last) == []
    called.clear()
    found = await evaluate_guardrails([content, nudging, patient, content, halting], last)
    assert found == [(nudging, Nudge("Stop.", 2)), (halting, Halt(3))]
    assert called == ["content", "nudging", "patient", "content", "halting"]
    wrongs: list[Any] = [lambda _: "stop", lambda _: True]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=r"it has to return Nudge\(…\), Halt\(…\) or None"):
            await evaluate_guardrails([content, wrong], last)


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (Nudge, [""], "Nudge(text=''): give non-empty text"),
        (Nudge, [5], "Nudge(text=5): give non-empty text"),
        (Nudge, ["Stop.", -1], "Nudge(count=-1): give a whole number, 0 or more"),
        (Nudge, ["Stop.", True], "Nudge(count=True): give a whole number, 0 or more"),
        (Halt, [-1], "Halt(count=-1): give a whole number, 0 or more"),
        (Halt, ["3"], "Halt(count='3'): give a whole number, 0 or more"),
    ],
)
def test_what_a_guardrail_says_is_checked(make, given, message):
    with pytest.raises(ConfigError) as caught:
        make(*given)
    assert str(caught.value) == message
