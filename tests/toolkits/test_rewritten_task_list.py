"""What an agent has set out to do, as one list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.error import ConfigError
from perdure.core.event import ValueKept
from perdure.core.message import Status
from perdure.runtime.agent import Agent
from perdure.testing import ScriptedModel, call
from perdure.toolkits.rewritten_task_list import (
    MOST_CHARACTERS,
    MOST_TASKS,
    StatedTask,
    Task,
    _assign_ids,
    parse_tasks,
    task_tools,
)


@pytest.fixture
def session():
    return Agent("demo", tools=task_tools()).session()


def stated(*contents: str, status: str = "pending") -> dict:
    return {"tasks": [{"content": each, "active_form": f"{each}…", "status": status} for each in contents]}


async def test_a_list_replaces_the_one_before_and_ids_stay_with_the_words(session):
    await session.call("update_tasks", stated("Splice", "Coil", "Paint"))
    assert [(task.id, task.content) for task in await session.tasks()] == [
        ("task-1", "Splice"), ("task-2", "Coil"), ("task-3", "Paint"),
    ]  # fmt: skip
    result = await session.call("update_tasks", stated("Paint", "Splice", "Sail", status="completed"))
    assert [(task.id, task.content) for task in await session.tasks()] == [
        ("task-3", "Paint"), ("task-1", "Splice"), ("task-4", "Sail"),
    ]  # fmt: skip
    assert result.text == "3 of 3 done:\n[x] Paint\n[x] Splice\n[x] Sail"
    assert result.render == await session.kept("tasks")
    assert (await session.call("update_tasks", {"tasks": []})).text == "The list is empty."
    assert await session.tasks() == []


async def test_two_tasks_with_the_same_words_have_two_ids(session):
    await session.call("update_tasks", stated("Again", "Again"))
    before = await session.kept("tasks")
    await session.call("update_tasks", stated("Again", "Again"))
    assert await session.kept("tasks") == before
    assert len({task.id for task in await session.tasks()}) == 2


async def test_more_than_one_at_a_time_is_remarked_on(session):
    result = await session.call("update_tasks", stated("Splice", "Coil", status="in_progress"))
    assert result.text.splitlines() == [
        "0 of 2 done:", "[~] Splice", "[~] Coil", "More than one is in_progress: work on one at a time.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        (stated(*["x"] * (MOST_TASKS + 1)), "101 tasks are too many"),
        (stated("x", " "), "task 2 has no content"),
        (stated("x" * (MOST_CHARACTERS + 1)), "task 1 has more than 500 characters"),
        (stated("x", status="done"), "status"),
        ({"tasks": "x"}, "tasks"),
    ],
)
async def test_what_is_no_list_of_tasks_is_said_and_nothing_is_kept(session, tasks, problem):
    result = await session.call("update_tasks", tasks)
    assert result.status is Status.ERROR
    assert problem in result.text
    assert await session.kept("tasks") is None


async def test_the_list_is_in_the_stream_and_survives_a_restart(tmp_path):
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    model = ScriptedModel(call("update_tasks", **stated("Splice", status="in_progress")), "Splicing.")
    async with Agent(model, tools=task_tools(), store=store) as agent:
        stream = agent.session("ship").stream("Go.")
        kept = [event async for event in stream if isinstance(event, ValueKept)]
    task = Task(id="task-1", content="Splice", active_form="Splice…", status="in_progress")
    assert [(event.name, parse_tasks(event.value)) for event in kept] == [("tasks", [task])]
    assert task.display_text == "Splice…"

    model = ScriptedModel(call("update_tasks", **stated("Coil", "Splice", status="completed")), "Done.")
    async with Agent(model, tools=task_tools(), store=store) as agent:
        session = agent.session("ship")
        assert await session.tasks() == [task]
        await session.run("Go on.")
        assert [(each.id, each.content, each.display_text) for each in await session.tasks()] == [
            ("task-2", "Coil", "Coil"), ("task-1", "Splice", "Splice"),
        ]  # fmt: skip


def test_what_is_no_list_of_tasks_cannot_be_read_as_one():
    assert parse_tasks(None) == []
    with pytest.raises(ConfigError, match=r"'notes' is no list of tasks .*: was another value stored as 'tasks'\?"):
        parse_tasks("notes")


LISTS = st.lists(st.sampled_from("abcd").map(StatedTask), max_size=6)


@given(st.lists(LISTS, max_size=5))
def test_ids_are_never_shared_and_words_that_stay_keep_theirs(lists):
    known: list[Task] = []
    for each in lists:
        named = _assign_ids(each, known)
        assert [task.content for task in named] == [task.content for task in each]
        assert len({task.id for task in named}) == len(named)
        for content in {task.content for task in each}:
            before = [task.id for task in known if task.content == content]
            after = [task.id for task in named if task.content == content]
            assert after[: len(before)] == before[: len(after)]
        known = named
