"""A person who is asked sees what each rule that an answer can make would have matched so far."""

from perdure import Agent, Permissions, allow, tool
from perdure._core.permission.grants import list_offers
from perdure._core.run.tool_calls.approval import MAX_EARLIER_CALLS
from perdure.permissions import CommandTarget, Verdict, command, later
from perdure.testing import ScriptedModel, call


@tool(permission=True, target=CommandTarget.of_argument("line"))
async def shell(line: str) -> str:
    """Run a command."""
    return f"ran {line}"


async def ask_about_last(*lines):
    """Return the offers for the last of some commands, of which the others were allowed."""
    rules = Permissions(*[allow("shell", target=command(each)) for each in lines[:-1]], handler=later)
    session = Agent(
        ScriptedModel(*[call("shell", line=each) for each in lines]), tools=[shell], permission=rules
    ).session()
    (question,) = (await session.run("Go.")).questions
    assert "earlier" not in question.calls[0]
    return {each["covers"]: each for each in question.calls[0]["offers"]}


async def test_an_offer_counts_the_earlier_calls_that_it_would_have_matched():
    offers = await ask_about_last(
        "git log -1", "git log -2", "git log -1", "git log -3", "git log -4", "git push", "git log -9"
    )
    assert "matched_count" not in offers["arguments"]
    assert offers["git log"]["matched_count"] == 5
    assert list(offers["git log"]["matched"]) == ["git log -4", "git log -3", "git log -1"]
    assert offers["tool"]["matched_count"] == 6


async def test_calls_that_were_refused_for_their_arguments_do_not_count():
    bad = call("shell", nothing="x")
    session = Agent(
        ScriptedModel(bad, call("shell", line="ls")), tools=[shell], permission=Permissions(handler=later)
    ).session()
    (question,) = (await session.run("Go.")).questions
    assert not any("matched_count" in each for each in question.calls[0]["offers"])


async def test_a_handler_gets_the_earlier_calls_too():
    seen = []

    async def person(requests):
        seen.append([(each.rule, each.matched_count) for each in list_offers(requests[0])])
        return [Verdict(allow=True)]

    made = [call("shell", line="make"), call("shell", line="make")]
    await Agent(ScriptedModel(*made, "Done."), tools=[shell], permission=Permissions(handler=person)).run("Go.")
    assert [count for _, count in seen[0]] == [0, 0, 0]
    assert [count for _, count in seen[1]] == [1, 1, 1]
    assert MAX_EARLIER_CALLS == 200
