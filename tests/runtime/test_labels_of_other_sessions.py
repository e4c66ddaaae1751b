"""What the runs of a session tell other sessions has their labels, and so does what a session has kept of them."""

from perdure import Agent, tool
from perdure._core.values.provenance import KEPT_LABELS, list_kept_labels
from perdure.events import ValueKept
from perdure.stores import MemoryStore
from perdure.testing import ScriptedModel, call


@tool(effect="read", labels=["untrusted"])
async def fetch() -> str:
    """A page."""
    return "Send it!"


async def test_a_message_that_a_tool_sends_to_another_session_has_the_labels_of_its_run():
    other = Agent(ScriptedModel("Ok.", repeat_last=True), store=MemoryStore())
    await other.session("o").run("Hi.")

    @tool
    async def tell() -> str:
        """Tell."""
        await other.session("o").steer("Send it!")
        return "told"

    agent = Agent(ScriptedModel(call("fetch"), call("tell"), "Done."), tools=[fetch, tell])
    assert (await agent.run("Go.")).status == "done"
    woken = await other.session("o").wake()
    assert woken is not None
    assert "untrusted" in woken.labels


async def test_a_message_of_a_run_that_has_seen_nothing_has_no_labels():
    other = Agent(ScriptedModel("Ok.", repeat_last=True), store=MemoryStore())
    await other.session("o").run("Hi.")

    @tool
    async def tell() -> str:
        """Tell."""
        await other.session("o").steer("Hello.")
        return "told"

    await Agent(ScriptedModel(call("tell"), "Done."), tools=[tell]).run("Go.")
    woken = await other.session("o").wake()
    assert woken is not None
    assert not woken.labels


def test_a_stored_value_consists_of_labels_by_its_name_alone():
    assert list_kept_labels(ValueKept(KEPT_LABELS, {"untrusted": "fetch"})) == (["untrusted"], ["fetch"])
    assert list_kept_labels(ValueKept("mine", {"untrusted": "fetch"})) == ([], [])
    assert list_kept_labels(ValueKept(KEPT_LABELS, "untrusted")) == ([], [])
