"""Memory, permissions, credentials and composition of Open Agent Loops, with our names."""

import asyncio
import base64

import msgspec
import pytest

from perdure import Agent, Grant, Permissions, ToolContext, ToolOutput, allow, ask, deny, tool, user
from perdure.events import Custom, Entry, ReplyFinished, TextDelta, ToolProgress
from perdure.models import Request, gated, observed
from perdure.permissions import GrantFile, Grants, MemoryVault, PermissionRequest, Scope, Verdict, credentialed, later
from perdure.stores import Conflict, Fenced, MemoryStore, listened, namespaced, open_store
from perdure.testing import Recorder, ScriptedModel, call, calls
from tests.coming_from.shows import shows
from tests.doubles import SECONDS


@shows("open-agent-loops", "Memory", "SessionMemoryStore")
async def test_memory_keeps_the_history_of_each_session():
    store = MemoryStore()
    agent = Agent(ScriptedModel("Rain.", "Snow.", "Sun."), store=store)
    await agent.session("oslo").run("Weather?")
    await agent.session("voss").run("Weather?")
    outcome = await agent.session("oslo").run("And now?")
    assert [each.text for each in outcome.messages] == ["Weather?", "Rain.", "And now?", "Sun."]
    assert [each.text for each in await agent.session("voss").messages()] == ["Weather?", "Snow."]


@shows("open-agent-loops", "Memory")
async def test_a_log_only_grows_and_one_process_at_a_time_appends_to_it():
    store = MemoryStore()
    await Agent(ScriptedModel("Rain."), store=store).session("oslo").run("Weather?")
    entries = await store.read("oslo")
    lease = await store.acquire("oslo")
    with pytest.raises(Conflict):
        await store.append(lease, [Entry(1, 0.0, Custom("over"), "a")], sync=True)
    await store.acquire("oslo", take_over=True)
    with pytest.raises(Fenced):
        await store.append(lease, [Entry(len(entries) + 1, 0.0, Custom("late"), "b")], sync=True)
    assert await store.read("oslo") == entries


@shows("open-agent-loops", "MemoryListener", "withMemoryListeners")
async def test_listeners_are_told_after_each_operation_and_change_nothing():
    told: list[tuple[str, ...]] = []

    async def on_append(session_id, entries):
        assert (await store.read(session_id))[-1] == entries[-1]  # it is stored already
        told.append(("append", session_id, *[type(each.event).__name__ for each in entries]))
        raise ValueError("a broken listener")

    def on_read(session_id, entries):
        if not told or told[-1] != ("read", session_id):
            told.append(("read", session_id))

    store = MemoryStore()
    heard = listened(
        store,
        on_append,
        on_read=on_read,
        on_delete=lambda session_id: told.append(("delete", session_id)),
        on_fork=lambda session_id, new_id: told.append(("fork", session_id, new_id)),
    )
    agent = Agent(ScriptedModel("Rain."), store=heard)
    outcome = await agent.session("oslo").run("Weather?")
    assert outcome.status == "done"
    appended = [each for each in told if each[0] == "append"]
    assert appended[0][:3] == ("append", "oslo", "RunStarted")
    assert sum(len(each) - 2 for each in appended) == len(await store.read("oslo"))
    told.clear()
    await heard.read("oslo")
    await heard.fork("oslo", "voss")
    await heard.delete("oslo")
    assert told == [("read", "oslo"), ("fork", "oslo", "voss"), ("delete", "oslo")]


@shows("open-agent-loops", "withMemoryNamespace")
async def test_a_namespace_is_a_part_of_a_store():
    store = MemoryStore()
    ours, theirs = namespaced(store, "ours"), namespaced(store, "theirs")
    await Agent(ScriptedModel("Rain."), store=ours).session("oslo").run("Weather?")
    await Agent(ScriptedModel("Snow."), store=theirs).session("oslo").run("Weather?")
    assert [each.session_id for each in await ours.list()] == ["oslo"]
    assert {each.session_id for each in await store.list()} == {"ours/oslo", "theirs/oslo"}
    assert len(await theirs.read("oslo")) == len(await store.read("theirs/oslo"))


# -- permissions -------------------------------------------------------------------------------------------------------


@tool(permission=True, action="write", target="path")
def save(path: str) -> str:
    """Save a file."""
    return f"saved {path}"


@tool(permission=True)
def send(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


@tool(permission=True)
def erase() -> str:
    """Erase everything."""
    return "erased"


SCRIPT = (call("save", path="a"), call("send", to="Ada"), call("erase"))


async def results_of(gate, *script, session_id="demo", **options):
    agent = Agent(ScriptedModel(calls(*script), "Done."), tools=[save, send, erase], permission=gate, **options)
    outcome = await agent.session(session_id).run("Go.")
    return [each.is_error for each in outcome.messages[2].tool_results]


@shows(
    "open-agent-loops",
    "permissionGate",
    "PermissionPolicy",
    'PermissionPolicy."allow"',
    'PermissionPolicy."deny"',
    "PermissionPolicy.Ask",
    'PermissionPolicy."ask"',
    "ApprovalPrompter",
    "ApprovalRequest",
)
async def test_tools_are_allowed_or_denied_silently_or_somebody_is_asked():
    asked: list[PermissionRequest] = []

    def prompt(requests):
        asked.extend(requests)
        return [Verdict(allow=True) for _ in requests]

    gate = Permissions(allow("save"), deny("erase"), ask("send"), handler=prompt)
    assert await results_of(gate, *SCRIPT) == [False, False, True]
    assert [(each.tool, dict(each.arguments)) for each in asked] == [("send", {"to": "Ada"})]
    asked.clear()
    narrow = Permissions(allow("save", target="tmp/*"), deny("save", action="write", target="etc/*"), handler=prompt)
    assert await results_of(narrow, *[call("save", path=path) for path in ("tmp/a", "etc/b", "c")]) == [
        *(False, True, False)
    ]
    assert [each.target for each in asked] == ["c"]


@shows("open-agent-loops", "ApprovalPrompter")
async def test_an_answer_may_come_later_and_from_another_process(tmp_path):
    def open_file():
        return open_store(f"sqlite:{tmp_path / 'sessions.db'}")

    first, second, third = open_file(), open_file(), open_file()
    gate = Permissions(handler=later)
    model = ScriptedModel(call("send", to="Ada"), "Sent.")
    agent = Agent(model, tools=[send], permission=gate, store=first)
    waiting = await agent.session("demo").run("Write to Ada.")
    assert waiting.status == "waiting"
    (slot,) = await Agent(ScriptedModel(), store=second).session("demo").display.slots()
    assert slot.waits
    await Agent(ScriptedModel(), store=second).session("demo").answer(slot.slot_id, True)
    outcome = await Agent(model, tools=[send], permission=gate, store=third).session("demo").resume()
    assert (outcome.text, outcome.messages[2].tool_results[0].text) == ("Sent.", "sent to Ada")
    for store in (first, second, third):
        await store.aclose()


@shows(
    "open-agent-loops",
    "PermissionStore",
    "InMemoryPermissionStore",
    "InMemoryPermissionStoreOptions",
    "SettablePolicy",
)
@pytest.mark.parametrize(
    ("fallback", "expected", "asks"),
    [(allow(), [False, False, True], 0), (deny(), [False, True, True], 0), (ask(), [False, False, True], 1)],
    ids=["allow", "deny", "ask"],
)
async def test_grants_are_seeded_with_decisions_and_rules_are_the_fallback(fallback, expected, asks):
    asked: list[PermissionRequest] = []

    def prompt(requests):
        asked.extend(requests)
        return [Verdict(allow=True) for _ in requests]

    seeded = [Grant("forever", allow=True, tool="save"), Grant("forever", allow=False, tool="erase")]
    rules = [allow("save"), fallback] if fallback.policy == "deny" else [fallback]
    gate = Permissions(*rules, handler=prompt, grants=Grants(seeded))
    assert await results_of(gate, *SCRIPT) == expected
    assert len(asked) == asks


@shows("open-agent-loops", "PermissionStore", "SettablePolicy", "ApprovalChoice")
@pytest.mark.parametrize("answer", [True, False])
async def test_a_choice_is_for_this_call_or_is_remembered_listed_and_revoked(answer, tmp_path):
    asked: list[str] = []
    verdict = Verdict(allow=answer)

    def prompt(requests):
        asked.extend(each.tool for each in requests)
        return [verdict for _ in requests]

    store = MemoryStore()
    gate = Permissions(handler=prompt, grants=GrantFile(tmp_path / "grants.json"))
    scopes: list[tuple[Scope, int]] = [("once", 2), ("session", 1), ("forever", 1)]
    for scope, heard in scopes:
        verdict = Verdict(allow=answer, scope=scope, covers="tool")
        asked.clear()
        for _ in range(2):
            assert await results_of(gate, call("send", to="Ada"), session_id=scope, store=store) == [not answer]
        assert len(asked) == heard
    session = Agent(ScriptedModel(), permission=gate, store=store).session("session")
    grants = {each.scope: each for each in await session.grants()}
    assert {scope: (each.tool, each.allow) for scope, each in grants.items()} == {
        "session": ("send", answer),
        "forever": ("send", answer),
    }
    for each in grants.values():
        assert await session.revoke(each.grant_id)
    assert await session.grants() == []


# -- credentials -------------------------------------------------------------------------------------------------------


@shows(
    "open-agent-loops",
    "withCredentials",
    "CredentialStore",
    "InMemoryCredentialStore",
    "InMemoryCredentialStoreOptions",
)
@pytest.mark.parametrize("how", ["one tool", "all tools"])
async def test_placeholders_are_resolved_for_the_tool_and_scrubbed_from_what_it_returns(how):
    got = []

    @tool(effect="read")
    async def fetch(url: str, token: str, context: ToolContext) -> ToolOutput:
        """Fetch a page."""
        got.append(token)
        context.emit(f"using {token}")
        encoded = base64.b64encode(token.encode()).decode()
        if url == "bad":
            raise ValueError(f"{token} was refused")
        return ToolOutput(f"fetched with {token} ({encoded})", render={"header": token})

    vault = MemoryVault({"github": "s3cr3t-t0ken"})
    assert vault.resolve("github") == "s3cr3t-t0ken"
    assert vault.resolve("gitlab") is None
    recorder = Recorder()
    script = [call("fetch", url=url, token="{{github}}") for url in ("good", "bad")]
    model = ScriptedModel(calls(*script, call("fetch", url="x", token="{{gitlab}}")), "Done.")
    tools = [credentialed(fetch, vault)] if how == "one tool" else [fetch]
    agent = Agent(model, tools=tools, vault=None if how == "one tool" else vault, watchers=[recorder])
    outcome = await agent.session("demo").run("Fetch.")
    assert got == ["s3cr3t-t0ken"] * 2
    good, bad, unknown = outcome.messages[2].tool_results
    assert good.text.startswith("fetched with ")
    assert set(good.render) == {"header"}
    assert (good.is_error, bad.is_error, unknown.is_error) == (False, True, True)
    assert "gitlab" in unknown.text
    assert len(recorder.of(ToolProgress)) == 2
    everything = repr([recorder.entries, outcome.messages, model.requests])
    assert "{{github}}" in everything
    assert "s3cr3t-t0ken" not in everything
    assert base64.b64encode(b"s3cr3t-t0ken").decode() not in everything


# -- composition -------------------------------------------------------------------------------------------------------


@shows("open-agent-loops", "withModelGate", "ModelGate")
async def test_a_gate_is_awaited_before_each_request_and_may_wait_change_or_refuse_it():
    free = asyncio.Event()

    async def admit(request: Request):
        await free.wait()
        if "secret" in request.messages[-1].text:
            raise PermissionError("not that")
        return msgspec.structs.replace(request, instructions="Be brief.")

    inner = ScriptedModel("Rain.", "Never.")
    session = Agent(gated(inner, admit)).session("demo")
    running = asyncio.create_task(session.run("Rain?"))
    async with asyncio.timeout(SECONDS):
        for _ in range(30):
            await asyncio.sleep(0)
        assert inner.requests == []
        free.set()
        assert (await running).text == "Rain."
    assert inner.requests[0].instructions == "Be brief."
    refused = await session.run("Tell me the secret.")
    assert (refused.status, str(refused.error), inner.remaining) == ("failed", "not that", 1)


@shows("open-agent-loops", "withModelObserver")
async def test_an_observer_sees_every_event_of_a_stream_with_its_request():
    seen = []
    model = observed(ScriptedModel("Rain.", chunk=2), lambda request, event: seen.append((request, event)))
    outcome = await Agent(model).run(user("Rain?"))
    assert outcome.text == "Rain."
    events = [event for _, event in seen]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Ra", "in", "."]
    assert isinstance(events[-1], ReplyFinished)
    assert {request.messages[-1].text for request, _ in seen} == {"Rain?"}
