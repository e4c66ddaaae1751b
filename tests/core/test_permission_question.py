"""Questions about permission: what they say, and the answers that they take."""

from typing import Any

import msgspec
import pytest

from perdure import Agent, ConfigError, Permissions, ToolOutput, tool
from perdure._core.permission.request import NO_ANSWER
from perdure._core.run.tool_calls.questions import parse_verdicts, validate_verdicts
from perdure.events import QuestionAsked
from perdure.permissions import PermissionRequest, Verdict, later
from perdure.testing import Recorder, ScriptedModel, call, calls


def request(call_id: str, target: str = "ls") -> PermissionRequest:
    return PermissionRequest(call_id, "shell", "run", target, {"x": 1}, "hash", True, "s", "r")


def question(*names: str) -> QuestionAsked:
    return QuestionAsked("q", "permission", "May it?", tuple([msgspec.to_builtins(request(each)) for each in names]))


def stored(allow: bool, **more: str) -> dict[str, Any]:
    return msgspec.to_builtins(Verdict(allow, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "verdicts"),
    [
        (True, {"a": stored(True), "b": stored(True)}),
        (Verdict(allow=False, reason="no"), {"a": stored(False, reason="no"), "b": stored(False, reason="no")}),
        ({"allow": True}, {"a": stored(True), "b": stored(True)}),
        ({"a": True, "b": {"allow": False}}, {"a": stored(True), "b": stored(False)}),
        ({"a": Verdict(allow=True, scope="run")}, {"a": stored(True, scope="run")}),
        ({}, {}),
    ],
)
def test_an_answer_is_for_all_calls_or_for_each_of_them(answer, verdicts):
    assert validate_verdicts(question("a", "b"), answer) == verdicts
    by = validate_verdicts(question("a", "b"), answer, "ann")
    assert by == {name: {**each, "by": "ann"} for name, each in verdicts.items()}


def test_a_call_may_be_named_like_the_field_of_a_verdict():
    assert validate_verdicts(question("allow"), {"allow": False}) == {"allow": stored(False)}


HOW = "give True, False, a Verdict(…), or one of these for each call of 'a', 'b'"
SCOPES = "the scopes are 'once', 'run', 'session' and 'forever'"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"c": True}, "'c' is none of the calls, and a verdict as JSON has the field 'allow'"),
        ({"allow": True, "scope": "week"}, f"Invalid enum value 'week' - at `$.scope`: {SCOPES}"),
        (5, "Expected `object`, got `int`"),
    ],
)
def test_what_is_no_answer_is_refused_with_the_reason(answer, problem):
    with pytest.raises(ConfigError) as caught:
        validate_verdicts(question("a", "b"), answer)
    assert str(caught.value) == f"{answer!r} does not answer whether calls may be made ({problem}): {HOW}"


def test_an_answer_that_is_remembered_is_given_for_each_call():
    answer = {"allow": True, "scope": "run"}
    with pytest.raises(ConfigError) as caught:
        validate_verdicts(question("a", "b"), answer)
    told = "is to be remembered, and would be for each of 2 calls: give an answer for each of 'a', 'b'"
    assert str(caught.value) == f"{answer!r} {told}"


def test_an_answer_for_one_call_may_be_remembered():
    assert validate_verdicts(question("a"), {"allow": True, "scope": "run"}) == {"a": stored(True, scope="run")}


def test_a_pattern_that_does_not_match_the_call_is_no_answer():
    wrong = Verdict(allow=True, scope="session", covers="pwd*")
    with pytest.raises(ConfigError):
        validate_verdicts(question("a"), wrong)
    assert parse_verdicts([request("a")], {"a": stored(True, scope="session", covers="pwd*")}) == [NO_ANSWER]


@pytest.mark.parametrize("answer", [None, "yes", {}, {"a": 5}, {"a": {"allow": "maybe"}}])
def test_calls_without_an_answer_that_can_be_read_are_denied(answer):
    assert parse_verdicts([request("a")], answer) == [NO_ANSWER]


def test_each_call_has_its_own_verdict():
    answer = {"b": stored(True, by="x")}
    assert parse_verdicts([request("a"), request("b")], answer) == [NO_ANSWER, Verdict(allow=True, by="x")]


@tool(permission=True, target="to")
async def send(to: str) -> str:
    """Send."""
    return to


@tool(effect="read")
async def fetch() -> ToolOutput:
    """Fetch."""
    return ToolOutput("a page", labels=["untrusted"])


async def test_a_question_names_each_call_with_its_target_and_what_it_follows():
    recorder = Recorder()
    both = calls(call("send", to="a"), call("send", to="b"))
    model = ScriptedModel(both, repeat_last=True)
    permission = Permissions(handler=later)
    await Agent(model, tools=[send], permission=permission, watchers=[recorder]).session("s").run("Go")
    (asked,) = recorder.of(QuestionAsked)
    assert asked.text == "May 'send' be called on a?; May 'send' be called on b?"
    assert [each["call_id"] for each in asked.calls] == ["call_1", "call_2"]
    assert asked.expires_at is None
    model = ScriptedModel(call("fetch"), call("send", to="a"))
    await Agent(model, tools=[send, fetch], permission=permission, watchers=[recorder]).session("t").run("Go")
    assert recorder.of(QuestionAsked)[-1].text == (
        "May 'send' be called on a? (It follows text that is labelled untrusted, from tool:fetch.)"
    )
