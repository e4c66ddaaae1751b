"""Plans in replies of models: parsed, and corrected so that they can always be carried out."""

from typing import Any

import pytest

from perdure._core.values.engine_event import PlannedTask
from perdure._engines.planner import MAX_DESCRIPTION_CHARACTERS, parse_plan


@pytest.mark.parametrize(
    "text",
    [
        '[{"id": "a", "description": "x"}]',
        '```json\n[{"id": "a", "description": "x"}]\n```',
        'Here is [my] plan:\n{"tasks": [{"id": "a", "task": "x"}]}\nGood luck!',
        'Of [1] and ["2"] I make [{"id": "a", "description": "x"}], see [3].',
        '[{"id": "b", "description": "too long"}]\nNo, shorter:\n```\n[{"id": "a", "description": "x",},]\n```',
        '<think>[1]</think>[{"id": "a", "title": "x", "dependsOn": []}]',
    ],
)
def test_a_plan_is_found_in_what_the_model_says(text: str) -> None:
    plan = parse_plan(text, 5)
    assert (plan.tasks, plan.problems) == ((PlannedTask("a", "x"),), ())


def test_a_list_of_texts_is_a_plan_and_ids_may_be_numbers() -> None:
    assert parse_plan('["x", "y"]', 5).tasks == (PlannedTask("1", "x"), PlannedTask("2", "y"))
    tasks = parse_plan('[{"id": 1, "description": "x"}, {"id": 2, "description": "y", "depends_on": 1}]', 5).tasks
    assert tasks == (PlannedTask("1", "x"), PlannedTask("2", "y", ("1",)))


NO_LIST = "there is no JSON list of tasks"


@pytest.mark.parametrize(
    ("text", "problems", "tasks"),
    [
        ("no", None, []),
        ("5", None, []),
        ('{"plan": 1}', None, []),
        ("[" * 9999, None, []),
        ('[{"id": "a"}, "x"]', ["task 1 has no description"], [("2", "x", ())]),
        (
            '[{"description": true}, 5.5, null]',
            ["task 1 has no description", "task 2 has no description", "task 3 has no description"],
            [],
        ),
        (
            '[{"id": "a", "description": "x"}, {"id": "a", "description": "y"}]',
            ["two tasks have the id 'a'"],
            [("a", "x", ()), ("a-2", "y", ())],
        ),
        (
            '[{"id": "a", "description": "x"}, {"id": "b", "description": "y", "depends_on": ["z", 1.5, "a", "a"]}]',
            ["task 'b' depends on 'z', which does not exist"],
            [("a", "x", ()), ("b", "y", ("a",))],
        ),
        (
            '[{"id": "a", "description": "x", "depends_on": ["a"]}]',
            ["task 'a' depends on itself through 'a'"],
            [("a", "x", ())],
        ),
        (
            '["a", "b", "c", "d"]',
            ["it has 4 tasks, and at most 3 are allowed"],
            [("1", "a", ()), ("2", "b", ()), ("3", "c", ())],
        ),
        ('[{"id": " ", "description": " ", "title": 7}]', [], [("1", "7", ())]),
    ],
)
def test_mistakes_are_named_and_corrected(text: str, problems: list[str] | None, tasks: list[Any]) -> None:
    plan = parse_plan(text, 3)
    assert [(each.id, each.description, each.depends_on) for each in plan.tasks] == tasks
    if problems is None:
        assert [each[: len(NO_LIST)] for each in plan.problems] == [NO_LIST]
    else:
        assert list(plan.problems) == problems


def test_a_plan_may_have_as_many_tasks_as_are_allowed_and_what_follows_is_left_out() -> None:
    assert parse_plan('["a", "b", "c"]', 3).problems == ()
    assert [each.description for each in parse_plan('["a", "b", "c", "d"]', 3).tasks] == ["a", "b", "c"]


def test_a_third_task_of_the_same_id_has_a_third_id_and_dependencies_mean_the_first() -> None:
    plan = parse_plan(
        '[{"id": "a", "description": "x"}, {"id": "a", "description": "y"}, {"id": "a", "description": "z"},'
        ' {"id": "b", "description": "w", "dependencies": ["a"]}]',
        5,
    )
    assert [each.id for each in plan.tasks] == ["a", "a-2", "a-3", "b"]
    assert plan.tasks[3].depends_on == ("a",)


def test_a_cycle_is_broken_where_it_closes() -> None:
    text = (
        '[{"id": "a", "description": "x", "depends_on": ["c"]}, {"id": "b", "description": "y", "depends_on": ["a"]},'
        ' {"id": "c", "description": "z", "depends_on": ["b", "a"]}]'
    )
    plan = parse_plan(text, 5)
    assert [each.depends_on for each in plan.tasks] == [("c",), ("a",), ()]
    assert len(plan.problems) == 2


def test_tasks_may_depend_on_those_of_earlier_plans_whose_ids_are_taken() -> None:
    plan = parse_plan('[{"id": "a", "description": "x", "depends_on": ["b"]}]', 5, ["a", "b"])
    assert plan.tasks == (PlannedTask("a-2", "x", ("b",)),)


def test_long_descriptions_are_cut() -> None:
    [task] = parse_plan(f'["{"x" * 9999}"]', 5).tasks
    assert len(task.description) == MAX_DESCRIPTION_CHARACTERS
