"""Tasks, todos and notes in another place: shared with subagents, or in a store of one's own."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import Agent, ConfigError, ToolContext, tool
from perdure._tools.tasks.storage import replace_value_store
from perdure.stores import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.tools import MemoryValues, TodoItem, notebook, parse_todos, scratchpad_tools, task_tools, todo_tools


class Table:
    """A store of one's own, with async functions."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}

    async def load(self, name: str) -> Any:
        return self.rows.get(name)

    async def save(self, name: str, value: Any) -> None:
        self.rows[name] = value


class FullTable(Table):
    """A store that has no room."""

    async def save(self, name: str, value: Any) -> None:
        raise OSError(f"no room for {name}: {value}")


def crew_of(values: Any, store: MemoryStore | None = None) -> Agent[Any]:
    """An agent that writes a todo and gives a subagent the task to finish it."""
    child_model = ScriptedModel(call("todo_update", id="a", status="done"), "Finished.")
    child = Agent(child_model, name="mate", description="Helps.", tools=todo_tools(values))
    model = ScriptedModel(
        call("todo_append", id="a", content="Splice"),
        call("mate", task="Finish it."),
        call("todo_list", include_completed=True),
        "Done.",
    )
    return Agent(model, tools=[*todo_tools(values), child.as_tool()], store=store or MemoryStore())


def last_result(outcome: Any) -> str:
    return str(outcome.tool_calls[-1].result.text)


async def test_the_list_of_a_session_is_shared_with_its_subagents():
    store = MemoryStore()
    session = crew_of("session", store).session("s")
    assert "- [done] a: Splice" in last_result(await session.run("Go."))
    assert parse_todos(await session.kept("todos")) == [TodoItem(id="a", content="Splice", status="done")]
    again = Agent(ScriptedModel(), tools=todo_tools("session"), store=store).session("s")
    assert "a: Splice" in (await again.call("todo_list", {"include_completed": True})).text


async def test_each_agent_has_its_own_list_otherwise():
    assert "- [pending] a: Splice" in last_result(await crew_of(None).session("s").run("Go."))


@pytest.mark.parametrize("values", [Table(), MemoryValues()])
async def test_a_store_of_ones_own_is_shared_by_whoever_has_it(values):
    assert "- [done] a: Splice" in last_result(await crew_of(values).session("s").run("Go."))
    other = Agent("demo", tools=todo_tools(values)).session("other")
    assert "a: Splice" in (await other.call("todo_list", {"include_completed": True})).text
    assert await other.kept("todos") is None


async def test_tasks_and_notes_have_the_same_choice():
    table = Table()
    tools = [*task_tools(table), *scratchpad_tools(table)]
    session = Agent("demo", tools=tools).session()
    assert (await session.call("read_scratchpad", {})).text == "(empty)"
    await session.call("write_scratchpad", {"content": "Berth 4"})
    await session.call("update_tasks", {"tasks": [{"content": "Splice"}]})
    assert (await session.call("read_scratchpad", {})).text == "Berth 4"
    assert table.rows["scratchpad"] == "Berth 4"
    assert table.rows["tasks"][0]["content"] == "Splice"
    shared = Agent("demo", extensions=[notebook(todos=True, values="session")]).session()
    await shared.call("write_scratchpad", {"content": "Berth 5"})
    assert await shared.kept("scratchpad") == "Berth 5"


@pytest.mark.parametrize("fails", [False, True])
async def test_the_place_of_one_tool_is_not_that_of_a_tool_that_is_called_after_it(fails):
    table = FullTable() if fails else Table()
    [shared] = [each for each in scratchpad_tools(table) if each.name == "write_scratchpad"]
    [own] = [each for each in scratchpad_tools() if each.name == "write_scratchpad"]

    @tool
    async def write_twice(context: ToolContext[Any]) -> str:
        """Write to both scratchpads, one after the other."""
        with contextlib.suppress(OSError):
            await shared.call({"content": "Berth 4"}, context)
        await own.call({"content": "Berth 5"}, context)
        return "ok"

    session = Agent("demo", tools=[write_twice]).session()
    assert (await session.call("write_twice", {})).text == "ok"
    assert table.rows == ({} if fails else {"scratchpad": "Berth 4"})
    assert await session.kept("scratchpad") == "Berth 5"


@pytest.mark.parametrize("values", ["log", 5, Table, object()])
def test_a_place_for_values_has_load_and_save(values):
    with pytest.raises(ConfigError, match="give 'session', or an object with load and save"):
        todo_tools(values)
    with pytest.raises(ConfigError, match=r"MemoryValues\.save\(name=5\)"):
        MemoryValues().save(5, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("methods", [("load",), ("save",), ()])
def test_a_store_needs_both_methods(methods: tuple[str, ...]) -> None:
    store: Any = SimpleNamespace(**dict.fromkeys(methods, print))
    with pytest.raises(ConfigError, match="give 'session', or an object with load and save"):
        replace_value_store([], store)
    assert replace_value_store([], SimpleNamespace(load=print, save=print)) == []
