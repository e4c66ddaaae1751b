"""Who may do what: one question for all the calls of a reply, and an answer that is stored before anything begins."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from msgspec import Struct

from perdure import Agent, Permissions, Status, Tool, ToolResult, allow, ask, deny, tool
from perdure._core.schema.parsing import arguments_hash
from perdure.events import ErrorRaised, PermissionDecided, QuestionAsked, ToolStarted
from perdure.permissions import PermissionRequest, Verdict, allow_all, deny_all
from perdure.stores import MemoryStore
from perdure.testing import Recorder, ScriptedModel, call, calls
from perdure.tools import before
from tests.doubles import NotedStore, log_of, of
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed


class Person:
    """Somebody who answers questions about calls, and remembers them."""

    def __init__(self, *verdicts: Any, error: BaseException | None = None) -> None:
        self.questions: list[list[PermissionRequest]] = []
        self._verdicts = verdicts or (Verdict(allow=True),)
        self._error = error

    async def __call__(self, requests: Sequence[PermissionRequest]) -> Sequence[Any]:
        self.questions.append(list(requests))
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        return self._verdicts if len(self._verdicts) > 1 else self._verdicts * len(requests)

    @property
    def asked(self) -> list[list[str]]:
        return [[request.tool for request in requests] for requests in self.questions]


done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done():
    done.clear()


@tool(permission=True, action="file.delete", target="path", effect="idempotent")
async def delete(path: str) -> str:
    """Deletes."""
    done.append(path)
    return f"{path} is gone"


@tool
async def look(path: str = "") -> str:
    """Looks."""
    done.append(f"look {path}")
    return "there"


async def results_of(*asked: Any, tools: Sequence[Tool[..., Any]] = (delete, look), **options: Any) -> list[ToolResult]:
    model = ScriptedModel(calls(*asked), "Done.")
    outcome = await Agent(model, tools=tools, **options).run("Go")
    assert outcome.status == "done", outcome
    assert_valid(outcome.messages)
    return list(outcome.messages[2].tool_results)


# -- who is asked, and about what --------------------------------------------------------------------------------------


async def test_one_question_is_asked_for_all_the_calls_of_a_reply():
    person = Person()
    recorder = Recorder()
    results = await results_of(
        call("delete", path="a"),
        call("look"),
        call("delete", path="b"),
        permission=Permissions(handler=person),
        watchers=[recorder],
    )
    assert person.asked == [["delete", "delete"]]
    assert [result.status for result in results] == [Status.OK] * 3
    (shown,) = recorder.of(QuestionAsked)
    assert [(each["tool"], each["target"]) for each in shown.calls] == [("delete", "a"), ("delete", "b")]


async def test_a_gate_of_your_own_is_asked_about_every_call():
    person = Person()
    await results_of(call("delete", path="a"), call("look"), permission=person)
    assert person.asked == [["delete", "look"]]


async def test_a_question_tells_what_will_be_done_to_what():
    person = Person()
    agent = Agent(ScriptedModel(call("delete", path="a"), "Done."), tools=[delete], permission=person)
    await agent.session("s").run("Go")
    ((question,),) = person.questions
    assert (question.tool, question.action, question.target) == ("delete", "file.delete", "a")
    assert (question.arguments, question.required) == ({"path": "a"}, True)
    assert question.arguments_hash == arguments_hash({"path": "a"})
    assert (question.call_id, question.session_id, bool(question.run_id)) == ("call_1", "s", True)


async def test_a_tool_that_does_not_say_is_asked_about_by_its_name_and_arguments():
    person = Person()
    await results_of(call("look", path="a"), permission=person)
    ((question,),) = person.questions
    assert (question.action, question.target, question.required) == ("look", '{"path":"a"}', False)


async def test_a_question_is_about_the_final_arguments():
    person = Person()
    rewritten = before(delete, lambda _, arguments: {"path": arguments["path"].removeprefix("/")})
    await results_of(call("delete", path="/etc"), tools=[rewritten], permission=Permissions(handler=person))
    ((question,),) = person.questions
    assert (question.arguments, question.target, done) == ({"path": "etc"}, "etc", ["etc"])


async def test_calls_that_cannot_run_are_not_asked_about():
    person = Person()
    results = await results_of(call("delete"), call("nope"), call("delete", path="a"), permission=person)
    assert person.asked == [["delete"]]
    assert [result.status for result in results] == [Status.ERROR, Status.ERROR, Status.OK]


async def test_when_no_call_can_run_nobody_is_asked():
    person = Person()
    results = await results_of(call("delete"), call("nope"), permission=person)
    assert person.asked == []
    assert [result.status for result in results] == [Status.ERROR, Status.ERROR]


async def test_a_tool_may_need_permission_for_some_arguments_only():
    @tool(permission=lambda arguments: arguments["force"])
    async def push(force: bool) -> str:
        """Pushes."""
        return "pushed"

    person = Person()
    gate = Permissions(handler=person)
    await results_of(call("push", force=False), call("push", force=True), tools=[push], permission=gate)
    ((question,),) = person.questions
    assert question.arguments == {"force": True}


async def test_a_tool_that_cannot_tell_whether_it_needs_permission_needs_it():
    def broken(arguments: Any) -> bool:
        raise ValueError("no idea")

    @tool(permission=broken)
    async def push() -> str:
        """Pushes."""
        return "pushed"

    (result,) = await results_of(call("push"), tools=[push])
    assert result.status is Status.DENIED


async def test_a_tool_that_cannot_tell_its_target_is_asked_about_by_its_arguments():
    def broken(arguments: Any) -> str:
        raise ValueError("no idea")

    @tool(target=broken)
    async def push(to: str) -> str:
        """Pushes."""
        return "pushed"

    person = Person(Verdict(allow=False, reason="better not"))
    (result,) = await results_of(call("push", to="prod"), tools=[push], permission=Permissions(handler=person))
    ((question,),) = person.questions
    assert (question.required, question.target, result.text) == (True, '{"to":"prod"}', "better not")


# -- no is the answer to everything that goes wrong --------------------------------------------------------------------


async def test_without_anybody_to_ask_a_tool_that_needs_permission_is_denied():
    results = await results_of(call("delete", path="a"), call("look"))
    assert [result.status for result in results] == [Status.DENIED, Status.OK]
    assert "there is no one to ask" in results[0].text
    assert done == ["look "]


async def test_rules_without_a_handler_deny_what_they_would_ask_about():
    (result,) = await results_of(call("look"), permission=Permissions(ask("look")))
    assert (result.status, "there is no one to ask" in result.text) == (Status.DENIED, True)


@pytest.mark.parametrize(
    "error", [ValueError("offline"), KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError()], ids=repr
)
async def test_a_gate_that_fails_lets_nothing_through(error):
    recorder = Recorder()
    (first, second) = await results_of(
        call("delete", path="a"), call("look"), permission=Person(error=error), watchers=[recorder]
    )
    assert (first.status, second.status, done) == (Status.DENIED, Status.DENIED, [])
    assert first.text.startswith("permission denied: asking failed (")
    assert [event.where for event in recorder.of(ErrorRaised)] == ["the permission gate"]


@pytest.mark.parametrize("answers", [(), (None,), ("yes",), (True,)], ids=repr)
async def test_an_answer_that_is_missing_or_no_verdict_is_a_no(answers):
    async def gate(requests: Sequence[PermissionRequest]) -> Any:
        return answers

    (result,) = await results_of(call("delete", path="a"), permission=gate)
    assert (result.status, result.text) == (Status.DENIED, "permission denied: no answer was given")


async def test_answers_beyond_the_questions_are_ignored():
    async def gate(requests: Sequence[PermissionRequest]) -> list[Verdict]:
        return [Verdict(allow=True)] * 5

    results = await results_of(call("delete", path="a"), permission=gate)
    assert [result.status for result in results] == [Status.OK]


async def test_a_gate_that_answers_nothing_at_all_denies():
    async def gate(requests: Sequence[PermissionRequest]) -> Any:
        return None

    (result,) = await results_of(call("look"), permission=gate)
    assert result.status is Status.DENIED


async def test_what_is_denied_is_told_with_the_reason_and_the_rest_runs():
    person = Person(Verdict(allow=False, reason="not this one"), Verdict(allow=True), Verdict(allow=False))
    asked = [call("delete", path=path) for path in "abc"]
    results = await results_of(*asked, permission=Permissions(handler=person))
    assert [(result.status, result.text) for result in results] == [
        (Status.DENIED, "not this one"),
        (Status.OK, "b is gone"),
        (Status.DENIED, "permission denied"),
    ]
    assert done == ["b"]


@pytest.mark.parametrize(("gate", "status"), [(allow_all, Status.OK), (deny_all, Status.DENIED)])
async def test_everything_or_nothing_may_be_allowed(gate, status):
    results = await results_of(call("delete", path="a"), call("look"), permission=gate)
    assert [result.status for result in results] == [status, status]


async def test_the_strictest_rule_decides_and_only_open_questions_are_asked():
    person = Person(Verdict(allow=False, reason="no"))
    rules = Permissions(allow("delete", target="tmp/*"), deny("delete", target="*/secret"), handler=person)
    paths = ["tmp/a", "tmp/secret", "home"]
    results = await results_of(*[call("delete", path=path) for path in paths], permission=rules)
    assert [result.status for result in results] == [Status.OK, Status.DENIED, Status.DENIED]
    assert [[request.target for request in question] for question in person.questions] == [["home"]]


async def test_permission_may_be_given_for_one_run():
    model = ScriptedModel(call("delete", path="a"), "Done.", call("delete", path="b"), "Done.")
    session = Agent(model, tools=[delete]).session()
    await session.run("Go", permission=allow_all)
    await session.run("Again")
    assert done == ["a"]


# -- the log -----------------------------------------------------------------------------------------------------------


async def test_decisions_are_stored_before_the_intents_they_allow():
    store = NotedStore()
    await results_of(call("delete", path="a"), call("look"), permission=Person(), store=store)
    appends = [append.kinds for append in store.appends]
    decided = appends.index(["permission_decided", "permission_decided"])
    assert appends[decided + 1] == ["tool_started", "tool_started"]


async def test_a_refusal_is_stored_together_with_the_result():
    store = NotedStore()
    await results_of(call("delete", path="a"), store=store)
    assert ["permission_decided", "tool_finished"] in [append.kinds for append in store.appends]


async def test_a_decision_says_everything_about_itself():
    store = MemoryStore()
    person = Person(Verdict(allow=True, reason="fine", scope="session"))
    agent = Agent(ScriptedModel(call("delete", path="a"), "Done."), tools=[delete], store=store, permission=person)
    outcome = await agent.session("s").run("Go")
    (decided,) = of(await log_of(store, "s"), PermissionDecided)
    assert (decided.call_id, decided.tool, decided.action, decided.target) == ("call_1", "delete", "file.delete", "a")
    assert (decided.allow, decided.reason, decided.scope) == (True, "fine", "session")
    assert (decided.arguments_hash, decided.run_id) == (arguments_hash({"path": "a"}), outcome.run_id)


# -- what is remembered ------------------------------------------------------------------------------------------------


async def test_a_verdict_for_the_session_holds_for_later_runs():
    person = Person(Verdict(allow=True, scope="session", covers="tool"))
    a, b, c = [call("delete", path=path) for path in "abc"]
    model = ScriptedModel(a, b, "Done.", c, "Done.")
    session = Agent(model, tools=[delete], permission=Permissions(handler=person)).session()
    await session.run("Go")
    await session.run("Again")
    assert (done, len(person.questions)) == (["a", "b", "c"], 1)


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_verdict_for_the_session_is_restored_from_its_log(allowed):
    store = MemoryStore()

    def agent(person: Person) -> Agent[Any]:
        model = ScriptedModel(call("delete", path="a"), "Done.")
        return Agent(model, tools=[delete], store=store, permission=Permissions(handler=person))

    await agent(Person(Verdict(allow=allowed, reason="said so", scope="session"))).session("s").run("Go")
    later = Person()
    outcome = await agent(later).session("s").run("Again")
    assert later.questions == []
    status = Status.OK if allowed else Status.DENIED
    assert outcome.messages[-2].tool_results[0].status is status


async def test_a_verdict_for_one_target_holds_for_no_other():
    person = Person(Verdict(allow=True, scope="session", covers="target"))
    model = ScriptedModel(*[call("delete", path=path) for path in "aab"], "Done.")
    await Agent(model, tools=[delete], permission=Permissions(handler=person)).run("Go")
    assert [[request.target for request in question] for question in person.questions] == [["a"], ["b"]]


async def test_a_verdict_for_a_session_holds_in_no_other_session():
    person = Person(Verdict(allow=True, scope="session"))
    model = ScriptedModel(call("delete", path="a"), "Done.", call("delete", path="a"), "Done.")
    agent = Agent(model, tools=[delete], permission=Permissions(handler=person))
    await agent.session("one").run("Go")
    await agent.session("two").run("Go")
    assert len(person.questions) == 2


async def test_a_verdict_once_is_asked_for_again():
    person = Person()
    model = ScriptedModel(call("delete", path="a"), call("delete", path="a"), "Done.")
    await Agent(model, tools=[delete], permission=Permissions(handler=person)).run("Go")
    assert len(person.questions) == 2


async def test_a_denied_call_has_no_intent():
    store = MemoryStore()
    agent = Agent(ScriptedModel(call("delete", path="a"), "Done."), tools=[delete], store=store)
    await agent.session("s").run("Go")
    assert not of(await log_of(store, "s"), ToolStarted)


class Moody(Struct):
    """A value that is accepted once, and refused when it is read again from what would be shown."""

    times: ClassVar[int] = 0

    def __post_init__(self) -> None:
        Moody.times += 1
        if Moody.times > 1:
            raise ValueError("not again")


async def test_what_is_not_the_same_when_it_is_read_again_is_not_run():
    @tool
    async def take(mood: Moody) -> str:
        """Take."""
        done.append("taken")
        return "taken"

    outcome = await Agent(ScriptedModel(call("take", mood={}), "Done."), tools=[take], permission=allow_all).run("Go")
    (result,) = outcome.messages[2].tool_results
    assert (result.status, "not again" in result.text, done) == (Status.ERROR, True, [])
