"""What is as large as the limit of a tool says is accepted, and one more is refused."""

import pytest

from perdure import Agent, ToolError
from perdure._tools import people
from perdure._tools.basic import MOST_BITS, MOST_BYTES, MOST_CHARACTERS, ConfinedTextFolder, evaluate_arithmetic
from perdure._tools.git.tools import build_log_command
from perdure._tools.search import patterns
from perdure._tools.tasks import task_list, todo
from perdure.hosts import LocalFiles
from perdure.testing import ScriptedModel, call

HALF = MOST_BITS // 2


def append_todo(size):
    return {"id": "a", "content": "x" * size}


def update_tasks(count, size=1, active=0):
    task = {"content": "x" * size, "active_form": "y" * active, "status": "pending"}
    return {"tasks": [task] * count}


@pytest.mark.parametrize(
    ("name", "tools", "most", "arguments"),
    [
        ("todo_append", todo.todo_tools, todo.MOST_CHARACTERS, append_todo),
        ("todo_append", todo.todo_tools, todo.LONGEST_ID, lambda size: {"id": "x" * size, "content": "do"}),
        ("update_tasks", task_list.task_tools, task_list.MOST_TASKS, update_tasks),
        ("update_tasks", task_list.task_tools, task_list.MOST_CHARACTERS, lambda size: update_tasks(1, size)),
        ("update_tasks", task_list.task_tools, task_list.MOST_CHARACTERS, lambda size: update_tasks(1, 1, size)),
    ],
    ids=["content", "id", "tasks", "task", "active form"],
)
async def test_a_list_takes_as_much_as_it_says(name, tools, most, arguments):
    session = Agent(ScriptedModel(), tools=tools()).session()
    assert not (await session.call(name, arguments(most))).is_error
    assert (await session.call(name, arguments(most + 1))).is_error


async def test_the_last_todo_of_a_full_list_is_added_and_no_other():
    session = Agent(ScriptedModel(), tools=todo.todo_tools()).session()
    full = [{"id": str(number), "content": "x", "status": "pending"} for number in range(todo.MOST_TODOS - 1)]
    await session.keep(todo.TODOS, full)
    assert not (await session.call("todo_append", {"id": "last", "content": "x"})).is_error
    assert "200 are the most" in (await session.call("todo_append", {"id": "more", "content": "x"})).text


@pytest.mark.parametrize(("count", "status"), [(people.MOST_OPTIONS, "waiting"), (11, "done")])
async def test_a_question_has_up_to_ten_options(count, status):
    asking = call("ask_user", question="Which?", options=[str(number) for number in range(count)])
    agent = Agent(ScriptedModel(asking, "Done."), tools=people.people_tools(), answer_timeout_seconds=0)
    assert (await agent.session().run("Go.")).status == status


def accepts(function, *arguments):
    """False if the function raises an error for the model."""
    try:
        function(*arguments)
    except ToolError:
        return False
    return True


@pytest.mark.parametrize(
    ("function", "fits", "too_much"),
    [
        (evaluate_arithmetic, "1".rjust(MOST_CHARACTERS), "1".rjust(MOST_CHARACTERS + 1)),
        (evaluate_arithmetic, f"2 ** {HALF}", f"2 ** {HALF + 1}"),
        (evaluate_arithmetic, f"2 ** {HALF} * 2 ** {HALF - 1}", f"2 ** {HALF} * 2 ** {HALF}"),
        (patterns.compile_glob, "x" * patterns.MOST_CHARACTERS, "x" * (patterns.MOST_CHARACTERS + 1)),
        (
            patterns.PortableRegex,
            "x" * patterns.MOST_REGEX_CHARACTERS,
            "x" * (patterns.MOST_REGEX_CHARACTERS + 1),
        ),
        (patterns.compile_glob, "**/a/**/b/**/c/**/d", "**/a/**/b/**/c/**/d/**/e"),
    ],
)
def test_an_expression_or_a_pattern_may_be_as_large_as_its_limit(function, fits, too_much):
    assert (accepts(function, fits), accepts(function, too_much)) == (True, False)


def test_a_file_is_written_up_to_the_most_bytes(tmp_path):
    folder = ConfinedTextFolder(tmp_path)
    assert accepts(folder.write_text, "full.txt", "x" * MOST_BYTES)
    assert not accepts(folder.write_text, "more.txt", "x" * (MOST_BYTES + 1))
    assert folder.read_text("full.txt") == "x" * MOST_BYTES


@pytest.mark.parametrize(("limit", "is_accepted"), [(0, False), (1, True), (200, True), (201, False)])
def test_a_log_has_from_one_to_two_hundred_commits(tmp_path, limit, is_accepted):
    assert accepts(build_log_command, LocalFiles(tmp_path), "", ".", limit) is is_accepted
