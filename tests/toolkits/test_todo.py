"""Things to do, one by one."""

import pytest

from perdure import Agent, ConfigError, Status, ToolContext, tool
from perdure._tools.tasks.todo import LONGEST_ID, MOST_CHARACTERS, MOST_TODOS
from perdure.events import ValueKept
from perdure.testing import ScriptedModel, call
from perdure.tools import TodoItem, parse_todos, todo_tools


@pytest.fixture
def session():
    return Agent("demo", tools=todo_tools()).session()


async def said(session, tool: str, **arguments) -> str:
    result = await session.call(tool, arguments)
    assert result.status is Status.OK, result.text
    return result.text


async def refused(session, tool: str, **arguments) -> str:
    before = await session.kept("todos")
    result = await session.call(tool, arguments)
    assert result.status is Status.ERROR, result.text
    assert await session.kept("todos") == before
    return result.text


async def test_todos_are_added_listed_and_changed(session):
    assert await said(session, "todo_list") == "The list is empty."
    assert await said(session, "todo_append", id="a", content="Splice") == "Added 'a'. 1 on the list: 1 pending."
    await said(session, "todo_append", id="b", content="Coil", status="in_progress")
    await said(session, "todo_append", id="c", content="Paint", status="cancelled")
    assert await said(session, "todo_update", id="b", status="done") == (
        "- [done] b: Coil\n3 on the list: 1 pending, 1 done, 1 cancelled."
    )
    await said(session, "todo_update", id="a", content="Splice twice")
    counts = "3 on the list: 1 pending, 1 done, 1 cancelled."
    assert await said(session, "todo_list") == f"{counts}\n- [pending] a: Splice twice"
    assert await said(session, "todo_list", include_completed=True) == (
        f"{counts}\n- [pending] a: Splice twice\n- [done] b: Coil\n- [cancelled] c: Paint"
    )


async def test_what_fails_again_and_again_is_to_be_escalated(session):
    await said(session, "todo_append", id="a", content="Splice")
    told = []
    for _ in range(4):
        await said(session, "todo_update", id="a", status="failed")
        told.append((await said(session, "todo_update", id="a", status="in_progress")).splitlines()[0])
    assert told[0].endswith("Splice (retried once)")
    assert told[1].endswith("Splice (retried 2 times)")
    assert told[2].endswith("(retried 3 times: stop retrying and escalate; say what is wrong, and ask a person)")
    assert "retried 4 times: stop retrying" in told[3]
    assert "stop retrying and escalate" in await said(session, "todo_list")
    assert "stop retrying" not in await said(session, "todo_update", id="a", status="done")
    assert parse_todos(await session.kept("todos")) == [TodoItem(id="a", content="Splice", status="done", retries=4)]


async def test_what_failed_and_is_to_be_done_again_later_is_retried_too(session):
    await said(session, "todo_append", id="a", content="Splice", status="failed")
    first = await said(session, "todo_update", id="a", status="pending")
    assert first.splitlines()[0].endswith("Splice (retried once)")
    again = await said(session, "todo_update", id="a", status="in_progress")
    assert again.splitlines()[0] == "- [in_progress] a: Splice (retried once)"
    assert "retried once" in await said(session, "todo_update", id="a", status="cancelled")


async def test_the_same_update_twice_is_one_retry(session):
    await said(session, "todo_append", id="a", content="Splice", status="failed")
    first = await said(session, "todo_update", id="a", status="in_progress")
    assert await said(session, "todo_update", id="a", status="in_progress") == first


async def test_the_same_todo_twice_is_there_once_and_another_of_its_id_is_refused(session):
    await said(session, "todo_append", id="a", content="Splice")
    assert "already" in await said(session, "todo_append", id="a", content="Splice")
    assert "there is a todo 'a' already" in await refused(session, "todo_append", id="a", content="Coil")
    assert len(await session.kept("todos")) == 1


async def test_an_update_of_nothing_says_so(session):
    await said(session, "todo_append", id="a", content="Splice")
    assert await said(session, "todo_update", id="a") == "Nothing to change for 'a': give a content or a status."


async def test_what_cannot_be_done_is_said(session):
    assert "there is no todo 'b': there are none" in await refused(session, "todo_update", id="b", status="done")
    await said(session, "todo_append", id="a", content="Splice")
    assert "there is no todo 'b': there are 'a'" in await refused(session, "todo_update", id="b")
    for name in ("", " ", "x" * (LONGEST_ID + 1), "a\nb"):
        assert "cannot be an id" in await refused(session, "todo_append", id=name, content="x")
    for content in ("", " ", "x" * (MOST_CHARACTERS + 1)):
        assert "is not accepted" in await refused(session, "todo_append", id="b", content=content)
        assert "is not accepted" in await refused(session, "todo_update", id="a", content=content)
    assert "status" in await refused(session, "todo_append", id="b", content="x", status="completed")


async def test_there_are_only_so_many():
    full = [TodoItem(id=str(number), content="x") for number in range(MOST_TODOS)]

    @tool
    async def prepare(context: ToolContext) -> None:
        """Fill the list."""
        await context.keep("todos", full)

    session = Agent("demo", tools=[*todo_tools(), prepare]).session()
    await session.call("prepare", {})
    assert "there are 200 todos, and 200 are the most" in await refused(session, "todo_append", id="a", content="x")


async def test_todos_are_in_the_stream_and_survive_a_restart(tmp_path):
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    model = ScriptedModel(call("todo_append", id="a", content="Splice"), "Noted.")
    async with Agent(model, tools=todo_tools(), store=store) as agent:
        stream = agent.session("ship").stream("Go.")
        kept = [event.value async for event in stream if isinstance(event, ValueKept) and event.name == "todos"]
    assert [parse_todos(value) for value in kept] == [[TodoItem(id="a", content="Splice")]]
    async with Agent("demo", tools=todo_tools(), store=store) as agent:
        assert "[pending] a: Splice" in await said(agent.session("ship"), "todo_list")


def test_what_is_no_list_of_todos_cannot_be_read_as_one():
    assert parse_todos(None) == []
    with pytest.raises(ConfigError, match="is no list of todos"):
        parse_todos([{"id": 3}])
