"""Glue's permissions, with our names."""

import pytest

from perdure import Agent, Permissions, ToolCall, allow, deny, tool
from perdure.permissions import GrantFile, Grants, PermissionRequest, Verdict, allow_all, deny_all
from perdure.testing import ScriptedModel, call, calls
from perdure.tools import before
from tests.coming_from.shows import shows


@tool(permission=True, action="write", target="path")
def save(path: str, text: str = "") -> str:
    """Save a file."""
    return f"saved {path}"


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


async def results_of(gate, *script):
    """The results of the calls of one reply, with this gate."""
    agent = Agent(ScriptedModel(calls(*script), "Done."), tools=[save, look], permission=gate)
    outcome = await agent.session("oslo").run("Go.")
    return outcome.messages[2].tool_results


@shows(
    "glue",
    "Permission",
    "Permission.Decide",
    "PermissionRequest",
    "PermissionRequest.Tool",
    "PermissionRequest.Action",
    "PermissionRequest.Target",
    "PermissionRequest.Args",
    "PermissionRequest.SessionID",
    "PermissionDecision",
    "PermissionDecision.Allow",
    "PermissionDecision.Reason",
)
async def test_a_gate_decides_about_all_calls_of_a_reply_with_their_final_arguments():
    asked = []

    async def gate(requests):
        asked.append(requests)
        return [Verdict(allow=each.target == "a", reason=f"{each.target} is not mine") for each in requests]

    results = await results_of(gate, call("save", path="a", text="x"), call("save", path="b"))
    ((first, second),) = asked
    assert isinstance(first, PermissionRequest)
    assert (first.tool, first.action, first.target, first.session_id) == ("save", "write", "a", "oslo")
    assert (first.arguments, second.arguments) == ({"path": "a", "text": "x"}, {"path": "b", "text": ""})
    assert first.arguments_hash != second.arguments_hash
    assert [each.is_error for each in results] == [False, True]
    assert results[0].text == "saved a"
    assert "b is not mine" in results[1].text


@shows("glue", "Permission.Decide")
async def test_rules_decide_some_calls_and_the_handler_is_asked_about_the_others():
    asked: list[str] = []

    def decide(requests):
        asked.extend(each.target for each in requests)
        return [Verdict(allow=True) for _ in requests]

    gate = Permissions(allow("save", target="tmp/*"), deny("save", target="etc/*"), handler=decide)
    results = await results_of(gate, *[call("save", path=path) for path in ("tmp/a", "etc/b", "home/c")], call("look"))
    assert [each.is_error for each in results] == [False, True, False, False]
    assert asked == ["home/c"]
    request = make_request("tmp/a")
    verdicts = [gate.decide_without_asking(make_request(path)) for path in ("tmp/a", "etc/b")]
    assert [verdict.allow for verdict in verdicts if verdict is not None] == [True, False]
    assert gate.decide_without_asking(make_request("home/c")) is None
    assert request.required


def make_request(path):
    return PermissionRequest("c1", "save", "write", path, {"path": path}, f"hash of {path}", required=True)


@shows("glue", "AllowAll", "AllowAll.Decide", "DenyAll", "DenyAll.Decide", "DenyAll.Reason")
async def test_everything_is_allowed_or_denied_with_a_reason():
    script = (call("save", path="a"), call("look"))
    assert [each.is_error for each in await results_of(allow_all, *script)] == [False, False]
    assert [each.is_error for each in await results_of(Permissions(), *script)] == [True, False]
    assert [each.is_error for each in await results_of(deny_all, *script)] == [True, True]
    locked = Permissions(handler=lambda requests: [Verdict(allow=False, reason="locked down") for _ in requests])
    refused, seen = await results_of(locked, *script)
    assert "locked down" in refused.text
    assert seen.text == "seen"
    for result in await results_of(Permissions.deny_all(reason="closed"), *script):
        assert "closed" in result.text
    request = make_request("a")
    assert [each.allow for each in await allow_all([request])] == [True]
    assert [each.allow for each in await deny_all([request])] == [False]


@shows(
    "glue",
    "PermissionDecision.RememberFor",
    "RememberScope",
    "RememberNever",
    "RememberSession",
    "RememberSessionTarget",
    "RememberForever",
)
@pytest.mark.parametrize(
    ("verdict", "asked"),
    [
        (Verdict(allow=True), ["a a b", "a"]),
        (Verdict(allow=True, scope="session", covers="tool"), ["a", "a"]),
        (Verdict(allow=True, scope="session", covers="target"), ["a b", "a"]),
        (Verdict(allow=True, scope="forever", covers="tool"), ["a", ""]),
    ],
    ids=["never", "session", "target", "forever"],
)
async def test_an_answer_is_remembered_as_long_as_it_says(verdict, asked, tmp_path, sqlite):
    heard: list[str] = []

    def decide(requests):
        heard.extend(each.target for each in requests)
        return [verdict for _ in requests]

    async def work(session_id, *paths):
        heard.clear()
        gate = Permissions(handler=decide, grants=GrantFile(tmp_path / "grants.json"))
        script = [ToolCall(f"c{number}", "save", f'{{"path": "{path}"}}') for number, path in enumerate(paths)]
        agent = Agent(ScriptedModel(*script, "Done."), tools=[save], permission=gate, store=sqlite())
        await agent.session(session_id).run("Save.")
        return " ".join(heard)

    assert [await work("oslo", "a", "a", "b"), await work("bergen", "a")] == asked


@shows("glue", "RememberScope")
async def test_what_is_remembered_is_in_the_log_and_can_be_listed_and_revoked(sqlite):
    def decide(requests):
        return [Verdict(allow=True, scope="session", covers="target") for _ in requests]

    gate = Permissions(handler=decide, grants=Grants())
    await (
        Agent(ScriptedModel(call("save", path="a"), "Done."), tools=[save], permission=gate, store=sqlite())
        .session("oslo")
        .run("Save.")
    )
    heard: list[PermissionRequest] = []

    def refuse(requests):
        heard.extend(requests)
        return []

    later_gate = Permissions(handler=refuse)
    model = ScriptedModel(call("save", path="a"), "Done.", call("save", path="a"), "Done.")
    session = Agent(model, tools=[save], permission=later_gate, store=sqlite()).session("oslo")
    assert not (await session.run("Again.")).messages[-2].tool_results[0].is_error
    (grant,) = await session.grants()
    assert (grant.tool, grant.target, grant.scope) == ("save", "a", "session")
    assert await session.revoke(grant.grant_id)
    assert (await session.run("Once more.")).messages[-2].tool_results[0].is_error
    assert [each.target for each in heard] == ["a"]


@shows("glue", "PermissionRequest.Args", "Hook.PreTool")
async def test_a_gate_sees_arguments_as_hooks_have_left_them():
    asked: list[PermissionRequest] = []

    async def gate(requests):
        asked.extend(requests)
        return [Verdict(allow=True) for _ in requests]

    hooked = before(save, lambda _call, arguments: {**arguments, "path": "tmp/" + arguments["path"]})
    model = ScriptedModel(call("save", path="a"), "Done.")
    outcome = await Agent(model, tools=[hooked], permission=gate).run("Save.")
    assert [(each.target, dict(each.arguments)) for each in asked] == [("tmp/a", {"path": "tmp/a", "text": ""})]
    assert outcome.messages[2].tool_results[0].text == "saved tmp/a"
