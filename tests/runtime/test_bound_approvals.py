"""What an approval is bound to: tool, agent, store, tenant, project and session; and what runs is what was shown."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import Agent, ConfigError, Permissions, Session, Tool, ToolContext, allow, ask, deny, tool
from perdure._core.permission.gate import get_gate_grants
from perdure.events import PermissionDecided, QuestionAnswered, QuestionWithdrawn
from perdure.permissions import PermissionRequest, Verdict, allow_all, later
from perdure.stores import MemoryStore, namespaced, open_store
from perdure.testing import ScriptedModel, call, calls
from perdure.tools import around, before, delegation, tool_from_schema
from tests.doubles import log_of, of
from tests.runtime.subagents.family import left_behind

pytestmark = pytest.mark.resumed

done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done():
    done.clear()


@tool(permission=True, target="what")
async def pay(what: str) -> str:
    """Pay."""
    done.append(what)
    return f"paid {what}"


def other_pay() -> Tool[..., Any]:
    @tool(name="pay", permission=True, target="what")
    async def refund(what: str) -> str:
        """Pay back."""
        done.append(f"other {what}")
        return "paid back"

    return refund


class Person:
    """Someone who allows everything, with one scope and width, and counts the questions."""

    def __init__(self, scope: Any = "session", covers: str = "tool", by: str = "") -> None:
        self.asked = 0
        self.verdict = Verdict(allow=True, scope=scope, covers=covers, by=by)

    async def __call__(self, requests: Sequence[PermissionRequest]) -> list[Verdict]:
        self.asked += len(requests)
        return [self.verdict] * len(requests)


def agent_of(gate: Any, store: Any = None, *, tools: Any = None, replies: Any = None, **options: Any) -> Agent[Any]:
    model = ScriptedModel(*(replies or [call("pay", what="tea"), "Paid."] * 4))
    return Agent(model, tools=tools or [pay], permission=gate, store=store or MemoryStore(), **options)


SCOPES = pytest.mark.parametrize("scope", ["session", "forever"])


# -- where it holds ----------------------------------------------------------------------------------------------------


@SCOPES
async def test_an_approval_holds_in_the_place_where_it_was_given(scope):
    person = Person(scope)
    session = agent_of(Permissions(handler=person)).session("s")
    await session.run("1")
    await session.run("2")
    assert (person.asked, done) == (1, ["tea", "tea"])


async def test_an_approval_for_a_run_ends_with_it():
    person = Person("run")
    model = [calls(call("pay", what="a")), call("pay", what="b"), "Paid.", call("pay", what="c"), "Paid."]
    session = agent_of(Permissions(handler=person), replies=model).session("s")
    await session.run("1")
    assert person.asked == 1
    await session.run("2")
    assert (person.asked, done) == (2, ["a", "b", "c"])


@SCOPES
async def test_tenants_with_equal_ids_do_not_share_an_approval(scope):
    person, store = Person(scope), MemoryStore()
    gate = Permissions(handler=person)
    for number, name in enumerate(("acme", "umbrella"), 1):
        await agent_of(gate, namespaced(store, name)).session("s").run("Go")
        assert person.asked == number
    await agent_of(gate, namespaced(store, "acme")).session("s").run("Go")
    assert person.asked == 2


@SCOPES
async def test_another_store_does_not_share_an_approval(scope, tmp_path):
    person = Person(scope)
    gate = Permissions(handler=person)
    first = agent_of(gate, f"sqlite:{tmp_path}/a.db")
    await first.session("s").run("Go")
    await first.replace(store=MemoryStore()).session("s").run("Go")
    await first.replace(store=f"sqlite:{tmp_path}/b.db").session("s").run("Go")
    await first.replace(store=f"file:{tmp_path}/c").session("s").run("Go")
    assert person.asked == 4
    again = first.replace(store=f"sqlite:{tmp_path}/a.db", model=ScriptedModel(call("pay", what="tea"), "Paid."))
    await again.session("s").run("Go")
    assert person.asked == 4


async def test_a_session_that_is_begun_anew_does_not_inherit_approvals():
    person, store = Person("session"), MemoryStore()
    gate = Permissions(handler=person)
    session = agent_of(gate, store).session("s")
    await session.run("1")
    await session.delete()
    anew = agent_of(gate, store).session("s")
    assert await anew.grants() == []
    await anew.run("2")
    assert person.asked == 2


async def test_a_fork_asks_again_unless_it_keeps_the_grants():
    person = Person("session")
    session = agent_of(Permissions(handler=person)).session("s")
    await session.run("1")
    fork = await session.fork("fork")
    assert await fork.grants() == []
    assert (await fork.explain("pay", {"what": "tea"})).verdict == "ask"
    kept = await session.fork("kept", keep_grants=True)
    (grant,) = await kept.grants()
    assert (await kept.explain("pay", {"what": "cake"})).grant == grant
    (original,) = await session.grants()
    assert await kept.revoke(grant.grant_id)
    assert await session.grants() == [original]  # a revocation in the fork is for the fork
    second = await (await session.fork("again", keep_grants=True)).fork("grandchild", keep_grants=True)
    assert len(await second.grants()) == 1


async def test_an_approval_for_ever_of_one_folder_does_not_hold_in_another(tmp_path, monkeypatch):
    person, store = Person("forever"), MemoryStore()
    gate = Permissions(handler=person)
    for number, name in enumerate(("one", "two"), 1):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        await agent_of(gate, store).session(name).run("Go")
        assert person.asked == number
    monkeypatch.chdir(tmp_path / "one")
    await agent_of(gate, store).session("again").run("Go")
    assert person.asked == 2


async def test_the_project_of_the_agent_is_what_counts_if_it_has_one(tmp_path, monkeypatch):
    from perdure.context import Project

    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "sub").mkdir()
    person, store = Person("forever"), MemoryStore()
    gate = Permissions(handler=person)
    for name in ("repo", "repo/sub"):
        project = Project(tmp_path / name, home=tmp_path)
        monkeypatch.chdir(tmp_path / name)
        await agent_of(gate, store, project=project).session(name.replace("/", "-")).run("Go")
    assert person.asked == 1


@SCOPES
async def test_an_approval_is_for_one_agent(scope):
    person, store = Person(scope), MemoryStore()
    gate = Permissions(handler=person)
    await agent_of(gate, store, name="buyer").session("s").run("1")
    await agent_of(gate, store, name="seller").session("s").run("2")
    assert person.asked == 2


# -- which tool --------------------------------------------------------------------------------------------------------


@SCOPES
async def test_an_approval_is_for_one_tool_and_not_for_another_of_its_name(scope):
    person, store = Person(scope), MemoryStore()
    gate = Permissions(handler=person)
    await agent_of(gate, store).session("s").run("1")
    await agent_of(gate, store, tools=[other_pay()]).session("s").run("2")
    assert (person.asked, done) == (2, ["tea", "other tea"])


async def test_a_denial_also_holds_for_another_tool_of_that_name():
    store, person = MemoryStore(), Person("session")
    person.verdict = Verdict(allow=False, reason="never", scope="session", covers="tool")
    gate = Permissions(handler=person)
    await agent_of(gate, store).session("s").run("1")
    await agent_of(gate, store, tools=[other_pay()]).session("s").run("2")
    assert (person.asked, done) == (1, [])


async def test_an_answer_is_not_applied_to_another_tool_when_the_run_is_resumed():
    store, gate = MemoryStore(), Permissions(handler=later)
    session = agent_of(gate, store).session("s")
    (question,) = (await session.run("Go")).questions
    await session.answer(question.ask_id, answer=True)
    changed = agent_of(gate, store, tools=[other_pay()], replies=["Paid."]).session("s")
    outcome = await changed.resume()
    assert (outcome.status, done) == ("waiting", [])
    (anew,) = outcome.questions
    assert anew.ask_id != question.ask_id
    await changed.answer(anew.ask_id, answer=True)
    assert ((await changed.resume()).status, done) == ("done", ["other tea"])


@pytest.mark.parametrize("changed", [False, True], ids=["the same tool", "another tool"])
async def test_what_was_allowed_just_before_a_crash_is_asked_about_again_only_for_another_tool(changed):
    store, person = MemoryStore(), Person("once", "arguments")
    await agent_of(Permissions(handler=person), store).session("s").run("Go")
    entries = await store.read("s")
    (decided,) = [place for place, entry in enumerate(entries, 1) if isinstance(entry.event, PermissionDecided)]
    assert (person.asked, done) == (1, ["tea"])
    left = await left_behind(entries[:decided])  # nothing of the call was begun
    tools = [other_pay()] if changed else [pay]
    outcome = await agent_of(Permissions(handler=person), left, tools=tools, replies=["Paid."]).session("s").resume()
    assert outcome.status == "done"
    assert (person.asked, done) == ((2, ["tea", "other tea"]) if changed else (1, ["tea", "tea"]))


async def test_a_question_about_a_tool_that_has_changed_is_withdrawn(caplog):
    store, gate = MemoryStore(), Permissions(handler=later)
    (question,) = (await agent_of(gate, store).session("s").run("Go")).questions
    changed = agent_of(gate, store, tools=[other_pay()], replies=["Paid."]).session("s")
    (anew,) = (await changed.resume()).questions
    assert [each.ask_id for each in await changed.questions()] == [anew.ask_id]
    (withdrawn,) = of(await log_of(store, "s"), QuestionWithdrawn)
    assert withdrawn.ask_id == question.ask_id
    (warning,) = [each.getMessage() for each in caplog.records]
    assert "session s asks again about a call of 'pay'" in warning
    assert f"not those of the question {question.ask_id}, and an answer to that is not used" in warning


async def test_an_answer_about_a_tool_that_has_changed_is_not_dropped_in_silence(caplog):
    store, gate = MemoryStore(), Permissions(handler=later)
    first = agent_of(gate, store).session("s")
    (question,) = (await first.run("Go")).questions
    await first.answer(question.ask_id, answer=True)
    changed = agent_of(gate, store, tools=[other_pay()], replies=["Paid."]).session("s")
    assert (await changed.resume()).status == "waiting"
    assert [question.ask_id in each.getMessage() for each in caplog.records] == [True]


async def test_of_two_calls_in_one_question_the_warning_names_the_one_whose_tool_has_changed(caplog):
    @tool(permission=True)
    async def send(what: str) -> str:
        """Send."""
        return f"sent {what}"

    store, gate = MemoryStore(), Permissions(handler=later)
    both = [calls(call("pay", what="tea"), call("send", what="tea")), "Done."]
    await agent_of(gate, store, tools=[pay, send], replies=both).session("s").run("Go")
    changed = agent_of(gate, store, tools=[other_pay(), send], replies=["Done."]).session("s")
    (anew,) = (await changed.resume()).questions
    assert len(anew.calls) == 2
    assert ["'pay'" in each.getMessage() for each in caplog.records] == [True]


PROGRAM = """
import asyncio, sys
from perdure import Agent, Permissions, tool
from perdure.permissions import later
from perdure.testing import ScriptedModel, call

@tool(permission=True)
async def refund(order: str) -> str:
    "Pay money back."
    return f"{order} is paid back"

def answer(request):
    results = request.messages[-1].tool_results
    return results[0].text if results else call("refund", order="7")

model, gate = ScriptedModel(answer, repeat_last=True), Permissions(handler=later)
agent = Agent(model, tools=[refund], permission=gate, store="sqlite:a.db")

async def main():
    async with agent:
        outcome = await agent.session("s").run("Go")
        await agent.session("s").answer(outcome.questions[0].ask_id, True)

if __name__ == "__main__":
    asyncio.run(main())
"""
WORKER = """
import asyncio
from desk.bot import agent

async def main():
    async with agent:
        outcome = await agent.session("s").resume()
        print(outcome.status, outcome.text)

asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["script", "module"])
async def test_an_approval_of_a_tool_in_the_program_that_is_run_counts_in_a_worker_that_imports_it(way, tmp_path):
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "bot.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "bot.py").write_text(PROGRAM, encoding="utf-8")
    worker = WORKER if way == "module" else WORKER.replace("desk.bot", "bot")
    (tmp_path / "worker.py").write_text(worker, encoding="utf-8")
    await run_python(tmp_path, *(["bot.py"] if way == "script" else ["-m", "desk.bot"]))
    assert await run_python(tmp_path, "worker.py") == "done 7 is paid back\n"


async def run_python(folder: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


async def test_a_decision_that_is_bound_to_no_tool_is_asked_for_again():
    store, gate = MemoryStore(), Permissions(handler=later)
    session = agent_of(gate, store).session("s")
    (question,) = (await session.run("Go")).questions
    (asked,) = question.calls
    old = PermissionDecided(
        asked["call_id"],
        "pay",
        "pay",
        "tea",
        asked["arguments_hash"],
        allow=True,
        scope="session",
        run_id=question.run_id,
    )
    await session._append_events(old)
    assert await session.grants() == []
    outcome = await session.resume()
    assert (outcome.status, done) == ("waiting", [])


# -- who ---------------------------------------------------------------------------------------------------------------


async def test_who_approved_is_stored_and_explained():
    gate, store = Permissions(handler=later), MemoryStore()
    session = agent_of(gate, store).session("s")
    (question,) = (await session.run("Go")).questions
    await session.answer(question.ask_id, {"allow": True, "scope": "session", "covers": "target"}, by="ann")
    await session.resume()
    log = await log_of(store, "s")
    assert [each.by for each in of(log, QuestionAnswered)] == ["ann"]
    (decided,) = of(log, PermissionDecided)
    assert (decided.by, decided.covers, decided.binding is not None) == ("ann", "target", True)
    explanation = await session.explain("pay", {"what": "tea"})
    assert explanation.grant is not None
    assert (explanation.grant.by, explanation.grant.at > 0) == ("ann", True)
    told = explanation.describe()
    for fact in (
        "allow: allowed before, for session",
        "scope: session",
        "covers: target",
        "by: ann",
        "at: 20",
        "session s@",
    ):
        assert fact in told


async def test_a_handler_says_who_approved():
    gate, store = Permissions(handler=Person(by="bob")), MemoryStore()
    await agent_of(gate, store).session("s").run("Go")
    assert [each.by for each in of(await log_of(store, "s"), PermissionDecided)] == ["bob"]


async def test_a_lasting_answer_is_given_for_each_call():
    session = agent_of(
        Permissions(handler=later), replies=[calls(call("pay", what="a"), call("pay", what="b")), "Paid."]
    ).session("s")
    (question,) = (await session.run("Go")).questions
    for lasting in (Verdict(allow=True, scope="run"), {"allow": True, "scope": "session"}):
        with pytest.raises(ConfigError, match="give an answer for each of"):
            await session.answer(question.ask_id, lasting)
    first, second = [each["call_id"] for each in question.calls]
    await session.answer(question.ask_id, {first: {"allow": True, "scope": "session"}, second: True})
    await session.resume()
    assert (len(await session.grants()), done) == (1, ["a", "b"])


@pytest.mark.parametrize("covers", ["c*", "t[", "target", "t*", "tool"])
async def test_a_pattern_that_does_not_match_the_call_is_refused(covers):
    session = agent_of(Permissions(handler=later)).session("s")
    (question,) = (await session.run("Go")).questions
    verdict = Verdict(allow=True, scope="session", covers=covers)
    if covers in {"c*", "t["}:
        with pytest.raises(ConfigError, match="does not match the call of 'pay' on 'tea'"):
            await session.answer(question.ask_id, verdict)
    else:
        assert await session.answer(question.ask_id, verdict)


async def test_a_pattern_of_a_handler_that_does_not_match_denies():
    outcome = await agent_of(Permissions(handler=Person(covers="cake*"))).session("s").run("Go")
    assert (outcome.messages[2].tool_results[0].status, done) == ("denied", [])


# -- what was shown is what runs ---------------------------------------------------------------------------------------


def raw_pay(seen: list[Any], **options: Any) -> Tool[..., Any]:
    async def carry_out(arguments: dict[str, Any]) -> str:
        seen.append(msgspec.to_builtins(arguments))
        arguments["what"].append("more")
        return "paid"

    schema = {"type": "object", "properties": {"what": {"type": "array"}}, "required": ["what"]}
    return tool_from_schema("pay", "Pay.", schema, carry_out, permission=True, **options)


def greedy(requests: Sequence[PermissionRequest]) -> list[Verdict]:
    for each in requests:
        arguments: Any = each.arguments
        arguments["what"].append("and cake")
        arguments["extra"] = True
    return [Verdict(allow=True)] * len(requests)


@pytest.mark.parametrize("gate", [greedy, Permissions(handler=greedy)])
async def test_a_gate_cannot_change_what_runs(gate):
    seen: list[Any] = []
    await agent_of(gate, tools=[raw_pay(seen)], replies=[call("pay", what=["tea"]), "Paid."]).session("s").run("Go")
    assert seen == [{"what": ["tea"]}]


async def test_a_wrapper_cannot_change_what_runs_nor_can_an_earlier_try():
    seen: list[Any] = []

    async def twice(call_next: Any, arguments: dict[str, Any], _context: Any) -> Any:
        arguments["what"].append("and cake")
        arguments["what"] = ["gold"]
        await call_next()
        return await call_next()

    wrapped = around(raw_pay(seen), twice)
    await agent_of(allow_all, tools=[wrapped], replies=[call("pay", what=["tea"]), "Paid."]).session("s").run("Go")
    assert seen == [{"what": ["tea"]}] * 2


async def test_a_retry_gets_what_was_approved():
    seen: list[Any] = []

    async def carry_out(arguments: dict[str, Any]) -> str:
        seen.append(msgspec.to_builtins(arguments))
        arguments["what"] = "gold"
        if len(seen) == 1:
            raise OSError
        return "paid"

    schema = {"type": "object", "properties": {"what": {"type": "string"}}}
    paying = tool_from_schema("pay", "Pay.", schema, carry_out, permission=True, effect="idempotent", retries=1)
    await agent_of(allow_all, tools=[paying]).session("s").run("Go")
    assert seen == [{"what": "tea"}] * 2


async def test_a_hook_cannot_change_what_runs_afterwards():
    seen: list[Any] = []
    given: list[dict[str, Any]] = []

    def keep(_call: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        given.append(arguments)
        return arguments

    def late(requests: Sequence[PermissionRequest]) -> list[Verdict]:
        given[0]["what"].append("and cake")
        return [Verdict(allow=True)] * len(requests)

    hooked = before(raw_pay(seen), keep)
    await agent_of(late, tools=[hooked], replies=[call("pay", what=["tea"]), "Paid."]).session("s").run("Go")
    assert seen == [{"what": ["tea"]}]


async def test_numbers_and_order_survive_being_frozen():
    seen: list[Any] = []

    async def carry_out(arguments: dict[str, Any]) -> str:
        seen.append(arguments)
        return "done"

    schema = {"type": "object"}
    keeping = tool_from_schema("pay", "Pay.", schema, carry_out, permission=True)
    given: dict[str, Any] = {"z": None, "a": 2**62, "m": [1.0, -0.5, "é"], "n": {}}
    outcome = await agent_of(allow_all, tools=[keeping], replies=[call("pay", **given), "Done."]).session("s").run("Go")
    assert outcome.status == "done"
    assert seen == [given]
    assert [*seen[0]] == [*given]


# -- on the way down ---------------------------------------------------------------------------------------------------


def child_of(gate: Any, **options: Any) -> Agent[Any]:
    return Agent(
        ScriptedModel(call("pay", what="tea"), "Paid.", repeat_last=True),
        name="scout",
        tools=[pay],
        permission=gate,
        **options,
    )


async def test_an_approval_of_the_parent_is_not_one_of_the_child():
    person = Person("session")
    child = child_of(None)
    replies = [call("pay", what="tea"), call("scout", task="buy"), "Done."]
    await agent_of(Permissions(handler=person), tools=[pay, child.as_tool()], replies=replies).session("s").run("Go")
    assert (person.asked, done) == (2, ["tea", "tea"])


async def test_an_approval_by_the_childs_own_handler_is_never_one_of_the_parents():
    store, own, above = MemoryStore(), Person("session"), Person("session")
    child = child_of(Permissions(ask("pay"), handler=own))

    def parent(gate: Any) -> Session[Any]:
        again = child.replace(model=ScriptedModel(call("pay", what="tea"), "Paid."))
        return agent_of(
            gate, store, tools=[again.as_tool(durable=True)], replies=[call("scout", task="buy"), "Done."]
        ).session("s")

    await parent(Permissions(allow("pay"), allow("scout"))).run("1")
    assert (own.asked, done) == (1, ["tea"])
    await parent(Permissions(ask("pay"), allow("scout"), handler=above)).run("2")  # now the parent wants to be asked
    assert (own.asked, above.asked, done) == (1, 1, ["tea", "tea"])


@pytest.mark.parametrize("background", [False, True])
async def test_a_delegated_agent_cannot_do_what_the_giver_denies(background):
    child = child_of(allow_all)
    replies: list[Any] = [call("delegate", agent="scout", task="buy", background=background)]
    replies += [call("wait_for_agents"), "Done."] if background else ["Done."]
    for narrow, expected in ((True, []), (False, ["tea"])):
        gate = Permissions(deny("pay"), allow())
        fresh = child.replace(model=ScriptedModel(call("pay", what="tea"), "Paid."))
        more = delegation([fresh], narrow_permission=narrow)
        giver = agent_of(gate, tools=[pay], replies=replies, extensions=[more])
        async with giver:
            await asyncio.wait_for(giver.session("s").run("Go"), 20)
        assert done == expected


async def test_a_handoff_keeps_the_denials_and_questions_of_the_first_agent():
    for narrow, expected in ((True, []), (False, ["tea"])):
        second = Agent(
            ScriptedModel(call("pay", what="tea"), "Paid."), name="billing", tools=[pay], permission=allow_all
        )
        first = agent_of(
            Permissions(deny("pay"), allow()),
            tools=[pay],
            replies=[call("hand_over_to_billing"), "?"],
            name="desk",
            handoffs=[second],
            narrow_handoffs=narrow,
        )
        names = [each.name for each in first.tools if each.name != "pay"]
        model = ScriptedModel(call(names[0]), "?")
        session = first.replace(model=model).session("s")
        await session.run("Go")
        assert done == expected
        explanation = await session.explain("pay", {"what": "tea"})
        assert explanation.verdict == ("deny" if narrow else "allow")


async def test_a_handoff_asks_by_the_handler_of_the_first_agent():
    person = Person("session")
    second = Agent(
        ScriptedModel(call("pay", what="tea"), call("pay", what="cake"), "Paid."),
        name="billing",
        tools=[pay],
        permission=Permissions(allow()),
    )
    gate = Permissions(ask("pay"), handler=person)
    first = agent_of(gate, tools=[pay], replies=["?"], name="desk", handoffs=[second])
    names = [each.name for each in first.tools if each.name != "pay"]
    session = first.replace(model=ScriptedModel(call(names[0]), "?")).session("s")
    await session.run("Go")
    assert (person.asked, done) == (1, ["tea", "cake"])
    (grant,) = await session.grants()
    assert [*(get_gate_grants(gate) or ())] == [grant]
    assert await session.revoke(grant.grant_id)
    assert await session.grants() == []


# -- the target --------------------------------------------------------------------------------------------------------


async def test_a_tool_gets_the_target_that_was_checked(tmp_path):
    from perdure.permissions import PathTarget, path

    seen: list[Any] = []

    @tool(permission=True, target=PathTarget.of_argument("file", tmp_path))
    async def write(context: ToolContext, file: str = "drafts/default") -> str:
        """Write."""
        seen.append(context.target)
        return file

    rules = Permissions(allow("write", target=path("drafts/**")))
    replies = [calls(call("write", file="drafts/a/../b"), call("write", file="drafts/../b"), call("write")), "Done."]
    outcome = await agent_of(rules, tools=[write], replies=replies).session("s").run("Go")
    assert [each.status for each in outcome.messages[2].tool_results] == ["ok", "denied", "ok"]
    assert [each.path for each in seen] == [f"{tmp_path.resolve()}/drafts/b", f"{tmp_path.resolve()}/drafts/default"]
    assert write.target is not None


async def test_a_tool_that_is_not_gated_gets_its_target_too_and_one_without_gets_none():
    seen: list[Any] = []

    @tool(effect="read", target="name")
    async def look(name: str, context: ToolContext) -> str:
        """Look."""
        seen.append((str(context.target), context.is_approved))
        return name

    @tool(effect="read")
    async def rest(context: ToolContext) -> str:
        """Rest."""
        seen.append((context.target, context.is_approved))
        return "rested"

    model = ScriptedModel(calls(call("look", name="x"), call("rest")), "Done.")
    await Agent(model, tools=[look, rest]).run("Go")
    assert sorted(seen, key=str) == sorted([("x", False), (None, False)], key=str)


async def test_a_target_that_cannot_be_computed_is_asked_about_whatever_the_rules_allow():
    def broken(_arguments: dict[str, Any]) -> str:
        raise KeyError("where")

    @tool(target=broken)
    async def write(where: str) -> str:
        """Write."""
        done.append(where)
        return "written"

    for gate, expected in ((Permissions(allow()), []), (Permissions(allow(), handler=Person("once")), ["x"])):
        replies = [call("write", where="x"), "Done."]
        session = agent_of(gate, tools=[write], replies=replies).session("s")
        explanation = await session.explain("write", {"where": "x"})
        assert explanation.verdict == ("ask" if expected else "deny")
        await session.run("Go")
        assert done == expected


def test_a_target_must_be_a_parameter_of_the_tool():
    from perdure.permissions import PathTarget

    with pytest.raises(ConfigError, match="'where' is not a parameter of the tool; there is 'what'"):

        @tool(target=PathTarget.of_argument("where"))
        async def look(what: str) -> str:
            """Look."""
            return what


def test_every_store_says_which_one_it_is(tmp_path):
    from perdure._core.values.binding import identify_store
    from perdure.stores import listened

    sqlite, file = open_store(f"sqlite:{tmp_path}/a.db"), open_store(f"file:{tmp_path}/b")
    memory = MemoryStore()
    assert identify_store(sqlite) == f"sqlite:{tmp_path}/a.db"
    assert identify_store(file) == f"file:{tmp_path}/b"
    assert identify_store(memory) == identify_store(memory) != identify_store(MemoryStore())
    assert identify_store(namespaced(memory, "acme")) == f"{identify_store(memory)}/acme/"
    assert identify_store(listened(sqlite, lambda *_: None)) == identify_store(sqlite)

    class Slim:
        """A store that cannot be referenced weakly."""

        __slots__ = ()

    slim = Slim()
    assert identify_store(slim) == identify_store(slim) != identify_store(Slim())
