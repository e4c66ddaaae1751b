"""The secrets of a family of agents: of whoever speaks, of whoever works for them, and of later processes."""

from typing import Any

import msgspec
import pytest

from perdure import Agent, Budget, ConfigError, ContextOverflow, Extension, Tool, ToolContext, tool
from perdure.context import Compaction, history_tools
from perdure.permissions import FileVault, MemoryVault
from perdure.stores import MemoryStore, open_store
from perdure.testing import ScriptedModel, call
from perdure.tools import delegation, scratchpad_tools
from tests.context.conversation import SNAPSHOT

SECRET = "hb-7f3a91c2-Ünïcode"


class Far:
    """A vault that cannot be listed."""

    def __init__(self, **values: str) -> None:
        self.values = values
        self.asked: list[str] = []

    async def resolve(self, name: str) -> str | None:
        self.asked.append(name)
        return self.values.get(name)


@tool(effect="read")
async def fetch(url: str) -> str:
    """Fetch a page."""
    return f"ok {url}"


@tool(effect="read")
async def look() -> str:
    """Look around."""
    return f"A note: {SECRET}"


def vault() -> Any:
    return Far(token=SECRET)


def knows(model: ScriptedModel) -> bool:
    """Whether a model was told the secret."""
    return any(SECRET in repr(list(request.messages)) for request in model.requests)


async def leaks(store: Any) -> list[tuple[str, str]]:
    """Which events of which sessions have the secret."""
    found: list[tuple[str, str]] = []
    for info in await store.list():
        events = [entry.event for entry in await store.read(info.session_id)]
        told = [each for each in events if SECRET in msgspec.json.encode(each).decode()]
        found += [(info.session_id, type(each).__name__) for each in told]
        found += [(info.session_id, post.id) for post in await store.posts(info.session_id) if SECRET in repr(post)]
    return found


# -- words -------------------------------------------------------------------------------------------------------------


async def test_words_for_another_agent_are_not_filled_with_secrets():
    model, store = ScriptedModel("Fine.", repeat_last=True), MemoryStore()
    scout = Agent(model, name="scout")
    orders = [call("delegate", agent="scout", task="Log in with {{token}}.", background=far) for far in (True, False)]
    agent = Agent(
        ScriptedModel(*orders, call("scout", task="Use {{token}}."), call("wait_for_agents"), "Done."),
        tools=[scout.as_tool()],
        extensions=[delegation([scout])],
        vault=vault(),
        store=store,
    )
    assert (await agent.session("s").run("Go")).status == "done"
    assert {each.messages[0].text for each in model.requests} == {"Log in with {{token}}.", "Use {{token}}."}
    assert await leaks(store) == []


async def test_words_for_the_log_may_have_braces_of_their_own():
    page = "Jinja uses {{ user }}, and my {{token}}."
    model = ScriptedModel(call("write_scratchpad", content=page), call("read_scratchpad"), "Done.")
    session = Agent(model, tools=scratchpad_tools(), vault=vault()).session("s")
    outcome = await session.run("Go")
    assert outcome.messages[-2].tool_results[0].text == await session.kept("scratchpad") == page


async def test_a_tool_of_your_own_can_be_left_without_secrets():
    @tool(credentials=False)
    async def render(template: str) -> str:
        """Render a template."""
        return template

    model = ScriptedModel(call("render", template="{{ user }} {{token}}"), "Done.")
    outcome = await Agent(model, tools=[render], vault=vault()).run("Go")
    assert outcome.messages[-2].tool_results[0].text == "{{ user }} {{token}}"


# -- a family ----------------------------------------------------------------------------------------------------------


async def test_whoever_is_handed_the_conversation_hides_what_was_handed_out_before():
    store, second = MemoryStore(), ScriptedModel(call("look"), "Fine.")
    other = Agent(second, name="other", tools=[look])
    first = ScriptedModel(call("fetch", url="{{token}}"), call("hand_over_to_other"))
    agent = Agent(first, name="first", tools=[fetch], vault=vault(), handoffs=[other], store=store)
    assert (await agent.session("s").run("Go")).text == "Fine."
    assert (await leaks(store), knows(second)) == ([], False)


async def test_an_agent_hides_what_its_child_was_given():
    store = MemoryStore()
    kid = Agent(ScriptedModel(call("fetch", url="{{token}}"), "Fine."), name="kid", tools=[fetch], vault=vault())
    model = ScriptedModel(call("kid", task="Go."), call("look"), f"It is {SECRET}.", "Fine.", chunk=3)
    session = Agent(model, tools=[kid.as_tool(), look], store=store).session("s")
    assert (await session.run("Go")).text == "It is {{token}}."
    await session.run(f"Again, {SECRET}.")
    assert (await leaks(store), knows(model)) == ([], False)


async def test_a_session_in_the_background_hides_what_its_giver_was_given():
    store, below = MemoryStore(), ScriptedModel(call("look"), lambda request: repr(list(request.messages)))
    kid = Agent(below, name="kid", tools=[look])
    above = ScriptedModel(
        call("fetch", url="{{token}}"),
        call("delegate", agent="kid", task="Go.", background=True),
        call("wait_for_agents"),
        "Done.",
    )
    agent = Agent(above, tools=[fetch], vault=vault(), store=store, extensions=[delegation([kid])])
    await agent.session("s").run("Go")
    assert len(await store.list()) == 2
    assert (await leaks(store), knows(above), knows(below)) == ([], False, False)


async def test_a_giver_hides_what_a_session_in_the_background_was_given():
    store = MemoryStore()
    kid = Agent(ScriptedModel(call("fetch", url="{{token}}"), "Fine."), name="kid", tools=[fetch], vault=vault())
    above = ScriptedModel(
        call("delegate", agent="kid", task="Go.", background=True), call("wait_for_agents"), call("look"), "Done."
    )
    agent = Agent(above, tools=[look], store=store, extensions=[delegation([kid])])
    await agent.session("s").run("Go")
    assert (await leaks(store), knows(above)) == ([], False)


async def test_a_failure_in_the_background_is_told_without_secrets(caplog):
    def fail(_agent: Any) -> Any:
        raise OSError(f"cannot reach {SECRET}")

    store = MemoryStore()
    kid = Agent(ScriptedModel("Fine."), name="kid", extensions=[Extension(name="broken", lifespan=fail)])
    orders = [call("delegate", agent="kid", task="Go.", background=True), call("wait_for_agents", timeout_seconds=20)]
    model = ScriptedModel(call("fetch", url="{{token}}"), *orders, "Done.")
    agent = Agent(model, tools=[fetch], vault=vault(), store=store, extensions=[delegation([kid])])
    await agent.session("s").run("Go")
    assert "cannot reach {{token}}" in caplog.text
    assert SECRET not in caplog.text
    assert (await leaks(store), knows(model)) == ([], False)


async def test_a_fork_hides_what_was_given_to_whoever_worked_for_the_first_session():
    store = MemoryStore()
    kid = Agent(ScriptedModel(call("fetch", url="{{token}}"), "Fine."), name="kid", tools=[fetch], vault=vault())
    model = ScriptedModel(call("kid", task="Go."), "Done.", call("look"), "Done.")
    session = Agent(model, tools=[kid.as_tool(), look], store=store).session("s")
    await session.run("Go")
    await (await session.fork("t")).run("Look")
    assert (await leaks(store), knows(model)) == ([], False)


@pytest.mark.parametrize("has_budget", [True, False])
async def test_a_model_that_sums_up_is_told_no_secret(has_budget):
    summing = ScriptedModel(SNAPSHOT, repeat_last=True)
    agent = Agent(
        ScriptedModel(call("fetch", url="{{token}}"), "Fine.", "Fine.", repeat_last=True),
        tools=[fetch],
        vault=vault(),
        compaction=Compaction(model=summing, keep_recent_messages=0),
        budget=Budget(token_budget=1_000_000) if has_budget else None,
    )
    session = agent.session("s")
    await session.run(f"The token is {SECRET}. {'More words. ' * 2_000}")  # before anybody knows that it is one
    await session.run("Go on.")
    await session.compact()
    assert summing.requests
    assert not knows(summing)


async def test_a_request_that_is_made_shorter_has_no_secret():
    too_long = ContextOverflow("too long", window_tokens=20_000)
    model = ScriptedModel("Fine.", call("fetch", url="{{token}}"), too_long, SNAPSHOT, "Fine.")
    session = Agent(model, tools=[fetch], vault=vault(), compaction=Compaction(keep_recent_messages=3)).session("s")
    await session.run("More words. " * 2_000)
    assert (await session.run(f"The token is {SECRET}.")).text == "Fine."  # nobody knows yet that it is one
    *_, refused, summed_up, shorter = model.requests
    assert not any(SECRET in repr(list(each.messages)) for each in (refused, summed_up, shorter))
    assert "The token is {{token}}." in [each.text for each in shorter.messages]


async def test_another_family_in_the_same_process_cannot_tell_what_is_secret_here():
    store, shared = MemoryStore(), Agent(ScriptedModel("Fine.", repeat_last=True), name="kid", tools=[look])
    first = ScriptedModel(call("fetch", url="{{token}}"), call("kid", task="Go."), "Done.")
    await Agent(first, tools=[fetch, shared.as_tool()], vault=vault(), store=store).session("s").run("Go")
    guess = ScriptedModel(call("kid", task=f"Is it {SECRET}?"), f"Is it {SECRET}?")
    outcome = await Agent(guess, tools=[shared.as_tool()], store=store).session("t").run("Go")
    assert outcome.text == f"Is it {SECRET}?"


# -- posts -------------------------------------------------------------------------------------------------------------


async def test_what_is_posted_between_runs_has_no_secrets():
    store = MemoryStore()
    agent = Agent(ScriptedModel(call("fetch", url="{{token}}"), "Fine."), tools=[fetch], vault=vault(), store=store)
    session = agent.session("s")
    await session.run("Go")
    await session.steer(f"Use {SECRET}.")
    await session.follow_up(f"And {SECRET}.")
    await session.configure(instructions=f"Say {SECRET}.")
    assert len(await store.posts("s")) == 2
    assert await leaks(store) == []


# -- before the first task ---------------------------------------------------------------------------------------------


def family_of(way: str, child: Agent[Any]) -> tuple[Agent[Any], dict[str, Any]]:
    """An agent that gives a task to another one in this way, and the options of its run."""
    name = "delegate" if way in {"delegate", "background"} else child.name
    given: dict[str, Any] = {"task": f"Use {SECRET}."}
    if name == "delegate":
        given |= {"agent": child.name, "background": way == "background"}
    model = ScriptedModel(call(name, **given), f"Used {SECRET}.", f"Really: {SECRET}.")
    store = MemoryStore()
    if name == "delegate":
        return Agent(model, store=store, extensions=[delegation([child])]), {}
    if way == "tool of a run":
        return Agent(model, store=store), {"tools": [child.as_tool()]}
    if way == "grandchild":
        between = Agent(model, name="between", tools=[child.as_tool()])
        return Agent(ScriptedModel(call("between", task=SECRET), SECRET), tools=[between.as_tool()], store=store), {}
    if way == "child of a successor":
        successor = Agent(ScriptedModel(), name="successor", tools=[child.as_tool()])
        return Agent(ScriptedModel(f"Used {SECRET}."), handoffs=[successor], store=store), {}
    return Agent(model, tools=[child.as_tool()], store=store), {}


@pytest.mark.parametrize(
    "way", ["tool", "tool of a run", "grandchild", "child of a successor", "delegate", "background"]
)
async def test_the_vault_of_an_agent_that_may_get_a_task_hides_its_secrets_from_the_first_event_on(way):
    child = Agent(ScriptedModel(f"I have {SECRET}."), name="child", vault=MemoryVault({"token": SECRET}))
    agent, options = family_of(way, child)
    session = agent.session("s")
    outcome = await session.run(f"The token is {SECRET}.", **options)
    if way == "background":
        await session.wait_for_agents(5)
        await session.wake()
    assert await leaks(agent.store) == []
    assert outcome.messages[0].text == "The token is {{token}}."


async def test_what_a_later_process_posts_before_its_first_run_has_no_secrets():
    store = MemoryStore()
    child = Agent(ScriptedModel(), name="child", vault=MemoryVault({"token": SECRET}))
    agent = Agent(ScriptedModel("Fine."), tools=[child.as_tool()], store=store)
    await agent.session("s").run("Go")
    for post in ("steer", "follow_up", "rename"):
        await getattr(agent.session("s"), post)(f"It is {SECRET}.")  # each a new session object, as in a new process
    await agent.session("s").keep(f"key {SECRET}", SECRET)
    assert await agent.session("s").kept(f"key {SECRET}") == "{{token}}"
    assert len(await store.posts("s")) == 2
    assert await leaks(store) == []


# -- later processes ---------------------------------------------------------------------------------------------------


async def in_a_first_process(store: str) -> None:
    model = ScriptedModel(call("fetch", url="{{token}} and {{lost}}"), call("fetch", url="{{token}}"), "Fine.")
    agent = Agent(model, tools=[fetch], vault=Far(token=SECRET, lost="a-value-that-is-lost"), store=store)
    await agent.session("s").run("Go")
    await agent.store.aclose()


async def test_a_later_process_hides_what_the_log_says_was_asked_for(tmp_path):
    store = f"sqlite:{tmp_path / 'log.db'}"
    await in_a_first_process(store)
    model, far = ScriptedModel(call("look"), "Fine.", "Fine."), Far(token=SECRET)
    agent = Agent(model, tools=[fetch, look], vault=far, store=store)
    session = agent.session("s")
    await session.run("Go on")
    await session.run("And on")
    assert far.asked == ["token", "lost"]  # once, and the second is gone
    assert (await leaks(agent.store), knows(model)) == ([], False)
    await agent.store.aclose()


async def test_names_that_no_tool_could_have_asked_for_are_not_looked_up():
    store, model = MemoryStore(), ScriptedModel(call("write_scratchpad", content="{{ user }}"), "Fine.", "Fine.")
    await Agent(model, tools=scratchpad_tools(), vault=vault(), store=store).session("s").run("Go")
    far = Far(user="root")
    await Agent(model, tools=scratchpad_tools(), vault=far, store=store).session("s").run("Go on")
    assert far.asked == []


async def test_a_child_of_a_later_process_remembers_what_an_earlier_one_asked_for(tmp_path):
    store = f"sqlite:{tmp_path / 'log.db'}"
    for first in (call("fetch", url="{{token}}"), call("look")):
        kid = Agent(ScriptedModel(first, "Fine."), name="kid", tools=[fetch, look], vault=vault())
        model = ScriptedModel(call("kid", task="Go."), "Done.")
        agent = Agent(model, tools=[kid.as_tool()], store=store)
        await agent.session("s").run("Go")
        assert (await leaks(agent.store), knows(model)) == ([], False)
        await agent.store.aclose()


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_vaults_that_can_be_listed_are_known_before_anything_is_asked_for(tmp_path, kind):
    file = FileVault(tmp_path / "keys.json")
    file.set("token", SECRET)
    agent = Agent(
        ScriptedModel(call("look"), "Fine."),
        tools=[look],
        vault=MemoryVault({"token": SECRET}) if kind == "memory" else file,
        store=open_store("memory:"),
    )
    await agent.session("s").run("Go")
    assert await leaks(agent.store) == []


async def test_a_vault_that_cannot_be_listed_now_does_not_keep_a_run_from_beginning(tmp_path):
    path = tmp_path / "keys.json"
    FileVault(path).set("token", SECRET)
    path.chmod(0o644)
    assert (await Agent(ScriptedModel("Fine."), vault=FileVault(path)).run("Go")).text == "Fine."


def test_tools_whose_arguments_are_words_say_so():
    other = Agent(ScriptedModel(), name="other")
    agent = Agent(ScriptedModel(), handoffs=[other], extensions=[delegation([other])], tools=[other.as_tool()])
    tools: list[Tool[..., Any]] = [*agent.tools, *scratchpad_tools(), *history_tools()]
    assert [each.name for each in tools if each.credentials] == []


@tool
async def remember(context: ToolContext[Any]) -> str:
    """Keep a value under a name that should not be kept."""
    await context.keep(f"notes of {SECRET}", 7)
    return f"{context.kept(f'notes of {SECRET}')}, {context.kept('other', 'nothing')}"


async def test_names_and_ids_that_others_choose_have_no_secret_in_the_log():
    store = MemoryStore()
    model = ScriptedModel(call("remember"), call(f"tool_{SECRET}"), "Done.", "Again.")
    async with Agent(model, tools=[remember], store=store, vault=MemoryVault({"token": SECRET})) as agent:
        session = agent.session("s")
        first = await session.run("Go.", input_id=f"input {SECRET}")
        assert first.messages[2].tool_results[0].text == "7, nothing"
        again = await session.run("Go.", input_id=f"input {SECRET}")
        assert (again.run_id, again.text) == (first.run_id, "Done.")
        await session.rename(f"About {SECRET}")
        assert await session.kept(f"notes of {SECRET}") == 7
        assert await session.kept("other", "nothing") == "nothing"
        written = "".join([repr(entry) for entry in await store.read("s")])
        assert SECRET not in written
        for name in ("notes of {{token}}", "tool_{{token}}", "input {{token}}", "About {{token}}"):
            assert name in written


async def test_a_session_whose_id_has_a_secret_is_refused():
    store = MemoryStore()
    async with Agent(ScriptedModel("Done."), store=store, vault=MemoryVault({"token": SECRET})) as agent:
        with pytest.raises(ConfigError, match="the id of this session contains a credential") as caught:
            await agent.session(f"of {SECRET}").run("Go.")
        assert SECRET not in str(caught.value)
    assert await store.list() == []
