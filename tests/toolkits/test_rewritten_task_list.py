"""What an agent has set out to do, as one list."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Agent, ConfigError, Status, UsageError
from perdure._tools.tasks.task_list import (
    MOST_CHARACTERS,
    MOST_TASKS,
    StatedTask,
    _assign_ids,
    apply_task_changes,
    convert_host_tasks,
)
from perdure.events import ValueKept
from perdure.testing import ScriptedModel, call
from perdure.tools import Task, parse_tasks, task_tools


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


KNOWN = [Task(id="task-1", content="Splice"), Task(id="task-7", content="Coil", active_form="Coiling")]


def test_tasks_of_a_host_program_keep_their_ids_or_those_of_the_same_words() -> None:
    own = Task(id="own", content="Paint", status="completed")
    assert convert_host_tasks(["Coil", own, StatedTask("Sail", "Sailing", "in_progress"), "Splice"], KNOWN) == [
        Task(id="task-7", content="Coil"),
        own,
        Task(id="task-8", content="Sail", active_form="Sailing", status="in_progress"),
        Task(id="task-1", content="Splice"),
    ]
    renamed = Task(id="task-1", content="Splice twice")
    assert convert_host_tasks([renamed, "Splice"], KNOWN) == [renamed, Task(id="task-8", content="Splice")]
    assert convert_host_tasks((), KNOWN) == []


@pytest.mark.parametrize(
    ("tasks", "text"),
    [
        ("Splice", "'Splice' is no list of tasks: give Task(…), StatedTask(…) or text for each"),
        (7, "7 is no list of tasks: give Task(…), StatedTask(…) or text for each"),
        (["Splice", 7], "7 is no task: give Task(…), StatedTask(…) or text"),
        (["Splice", " "], "these tasks are not accepted: task 2 has no content: say what is to be done"),
    ],
)
def test_what_is_no_list_of_tasks_is_not_taken_from_a_host_program(tasks: object, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        convert_host_tasks(tasks, KNOWN)
    assert str(raised.value) == text


def test_a_task_whose_status_is_unknown_is_not_taken_from_a_host_program() -> None:
    wrong: Any = StatedTask("Splice", "", "finished")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^these tasks are not accepted: .*finished"):
        convert_host_tasks([wrong], KNOWN)


def test_one_task_is_changed_and_the_others_stay() -> None:
    changed = Task(id="task-7", content="Coil", active_form="Coiling", status="completed")
    changes = {"status": "completed", "content": None, "active_form": None}
    assert apply_task_changes(KNOWN, "task-7", changes) == ([KNOWN[0], changed], changed)
    with pytest.raises(UsageError, match=r"^there is no task 'task-2': there are 'task-1', 'task-7'$"):
        apply_task_changes(KNOWN, "task-2", {})
    with pytest.raises(UsageError, match=r"^there is no task 'task-2': there are none$"):
        apply_task_changes([], "task-2", {})


async def test_one_at_a_time_is_not_remarked_on(session: Any) -> None:
    result = await session.call("update_tasks", stated("Splice", status="in_progress"))
    assert result.text == "0 of 1 done:\n[~] Splice"


async def test_a_list_may_be_full(session: Any) -> None:
    full = stated(*[str(number) for number in range(MOST_TASKS)])
    assert (await session.call("update_tasks", full)).status is Status.OK
