"""Calls that the provider makes itself: they pass the gate, and no tool of the agent is called."""

import pytest

from perdure import Agent, Message, Permissions, Status, ToolCall, tool
from perdure._core.model.protocol import sanitize_reply
from perdure._core.run.tool_calls.preparation import APPROVED, build_permission_only_tool
from perdure.permissions import Verdict
from perdure.testing import ScriptedModel

CALL = ToolCall("mcpr_1", "wiki_ask", '{"page": "rain"}', run_by_provider=True)


@tool(name="wiki_ask")
async def ours(page: str) -> str:
    """Asks."""
    raise AssertionError(page)


@pytest.mark.parametrize(
    ("allow", "status", "text"), [(True, Status.OK, APPROVED), (False, Status.DENIED, "not this page")]
)
async def test_the_gate_decides_and_no_tool_of_the_agent_is_called(allow, status, text):
    asked = []

    def answer(requests):
        asked.extend(requests)
        return [Verdict(allow=allow, reason="not this page")] * len(requests)

    model = ScriptedModel(Message("assistant", (CALL,)), "Done.")
    outcome = await Agent(model, tools=[ours], permission=Permissions(handler=answer)).run("Ask the wiki")
    assert outcome.text == "Done."
    (result,) = outcome.messages[2].tool_results
    assert (result.status, result.name) == (status, "wiki_ask")
    assert text in result.text
    assert [(each.tool, each.required, dict(each.arguments)) for each in asked] == [
        ("wiki_ask", True, {"page": "rain"})
    ]


async def test_a_person_is_asked_about_a_tool_that_the_agent_does_not_have():
    asked = []

    def answer(requests):
        asked.extend(requests)
        return [Verdict(allow=True)] * len(requests)

    model = ScriptedModel(Message("assistant", (CALL,)), "Done.")
    await Agent(model, permission=Permissions(handler=answer)).run("Ask the wiki")
    assert [each.earlier for each in asked] == [()]


async def test_arguments_that_cannot_be_shown_are_refused():
    broken = ToolCall("mcpr_1", "wiki_ask", "{not json", run_by_provider=True)
    outcome = await Agent(ScriptedModel(Message("assistant", (broken,)), "Done.")).run("Ask the wiki")
    assert outcome.messages[2].tool_results[0].status is Status.ERROR


def test_a_name_that_no_tool_may_have_is_made_one():
    assert [build_permission_only_tool(ToolCall("a", name)).name for name in ("wiki.ask it", "", "x" * 80)] == [
        "wiki_ask_it",
        "_",
        "x" * 64,
    ]


def test_a_call_of_the_provider_stays_one_when_its_reply_is_sanitized():
    strange = ToolCall("mcpr:1", "wiki_ask", run_by_provider=True)
    (call,) = sanitize_reply(Message("assistant", (strange,))).tool_calls
    assert (call.call_id, call.provider_call_id, call.run_by_provider) == ("call_1", "mcpr:1", True)
