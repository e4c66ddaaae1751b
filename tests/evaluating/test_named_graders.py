"""Graders by name with parameters."""

import sys
from typing import Any

import pytest

from perdure import Budget, ConfigError
from perdure._work.judging.evals.named_graders import (
    NAMES_AND_PARAMETERS,
    GraderDefaults,
    build_grader,
    find_grader_mistakes,
)
from perdure.evals import Evidence, grade_evidence
from perdure.testing import ScriptedModel

NO_CONTEXT = GraderDefaults()


async def judge(choice, answer="Paris is it", expected=None, context=NO_CONTEXT):
    return await build_grader(choice, context).grade(Evidence(goal="g", answer=answer, expected=expected))


@pytest.mark.parametrize(
    ("choice", "passes", "fails"),
    [
        ("contains", "It is Paris.", "It is Rome."),
        ({"name": "contains", "texts": "PARIS", "ignore_case": True}, "Paris", "Rome"),
        ({"name": "contains", "texts": ["a", "b"]}, "a and b", "only b... no: only x"),
        ("equals", " Paris ", "It is Paris"),
        ({"name": "equals", "expected": "x"}, "x", "y"),
        ({"name": "matches", "pattern": "^[A-Z]"}, "Paris", "paris"),
        ({"name": "matches", "pattern": "^[A-Z]", "timeout_seconds": 5}, "Paris", "paris"),
        ({"name": "schema", "schema": {"type": "object", "required": ["a"]}}, '{"a": 1}', '{"b": 1}'),
        ({"name": "all_of", "graders": ["contains", {"name": "matches", "pattern": "it"}]}, "Paris, it is", "Paris"),
        ({"name": "any_of", "graders": ["equals", {"name": "matches", "pattern": "^R"}]}, "Rome", "Oslo"),
    ],
)
async def test_a_grader_by_name_judges(choice, passes, fails):
    assert (await judge(choice, passes, "Paris")).passed
    assert not (await judge(choice, fails, "Paris")).passed


async def test_a_grader_can_be_given_another_name():
    grade = await judge({"name": "contains", "as": "names the city"}, expected="Paris")
    assert (grade.grader, grade.passed) == ("names the city", True)


async def test_a_grader_with_another_name_may_return_a_bool(tmp_path, monkeypatch):
    (tmp_path / "lenient_jury.py").write_text(
        "class Jury:\n    name = 'jury'\n    async def grade(self, evidence):\n        return True\njury = Jury()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    grader = build_grader({"name": "lenient_jury:jury", "as": "people"}, NO_CONTEXT)
    grade = await grade_evidence(grader, Evidence())
    assert (grade.passed, grade.grader) == (True, "people")


async def test_a_function_or_a_grader_is_used_as_it_is():
    grader = build_grader(lambda _: 0.5, NO_CONTEXT)
    assert (await grader.grade(Evidence())).score == 0.5
    assert build_grader(grader, NO_CONTEXT) is grader


async def test_a_grader_is_imported_from_a_module(tmp_path, monkeypatch):
    (tmp_path / "my_judges.py").write_text("def is_short(evidence):\n    return len(evidence.answer) < 5\nnumber = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert (await judge("my_judges:is_short", "ok")).passed
    with pytest.raises(ConfigError, match="and no grader"):
        build_grader("my_judges:number", NO_CONTEXT)
    with pytest.raises(ConfigError, match="is_short"):
        build_grader("my_judges:is_shor", NO_CONTEXT)


async def test_a_program_grades_by_its_exit_code(tmp_path):
    command = {"name": "command", "command": ["grep", "-q", "Paris"], "cwd": str(tmp_path)}
    assert (await judge(command)).passed
    assert not (await judge(command, "Rome")).passed


async def test_a_model_grades_with_the_model_and_the_budget_of_the_evaluation():
    model = ScriptedModel('{"passed": true, "score": 0.9, "feedback": ""}')
    budget = Budget(token_budget=100_000)
    grade = await judge({"name": "model", "criteria": "It is polite."}, context=GraderDefaults(model, budget))
    assert (grade.passed, grade.score) == (True, 0.9)
    assert "It is polite." in model.requests[0].messages[-1].text
    assert budget.spent_tokens > 0


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("contain", "did you mean 'contains'?"),
        ({"texts": "x"}, "the grader has no name"),
        ({"name": 3}, "the grader has no name"),
        ({"name": "contains", "text": "x"}, "did you mean 'texts'?"),
        ({"name": "contains", "as": 3}, "give one line of text"),
        ({"name": "all_of", "graders": []}, "at least one grader"),
        ({"name": "all_of", "graders": ["nope"]}, "there is no grader 'nope'"),
        ({"name": "mine:judge", "level": 3}, "takes no parameters"),
        ({"name": "schema", "schema": {"type": "nonsense"}}, "JSON Schema"),
        ("model", "--grader-model"),
        ({"name": "contains", "texts": 5}, "give non-empty text"),
        ({"name": "command", "command": 5}, "give a program"),
        ({"name": "command", "command": ["true"], "cwd": 5}, "path of a folder"),
        ({"name": "command", "command": ["true"], "timeout_seconds": "x"}, "give a number"),
        ({"name": "matches", "pattern": "(" * 5000}, "give a regular expression"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_grader_is_named(choice, message):
    with pytest.raises(ConfigError) as caught:
        build_grader(choice, NO_CONTEXT)
    assert message in str(caught.value)


def test_mistakes_have_their_place_in_the_list():
    found = list(find_grader_mistakes(["contains", 3, {"name": "command", "command": "true"}], trusted=False))
    assert [place for place, _ in found] == [1, 2]


@pytest.mark.parametrize(
    ("choice", "mistake"),
    [
        ({"name": "matches"}, "the grader 'matches' needs pattern: write {name = \"matches\", pattern = …}"),
        ({"name": "any_of"}, "the grader 'any_of' needs graders: write {name = \"any_of\", graders = …}"),
        ({"name": "schema"}, "the grader 'schema' needs schema: write {name = \"schema\", schema = …}"),
    ],
)
def test_a_parameter_that_is_missing_is_shown_where_it_belongs(choice, mistake):
    assert list(find_grader_mistakes([choice], trusted=False)) == [(0, mistake)]


def test_graders_are_nested_8_deep_and_no_deeper():
    def nest(levels):
        deep: object = "equals"
        for _ in range(levels):
            deep = {"name": "any_of", "graders": [deep]}
        return deep

    assert list(find_grader_mistakes([nest(8)], trusted=False)) == []
    for levels in (9, 12):
        assert list(find_grader_mistakes([nest(levels)], trusted=False)) == [
            (0, "graders of 'any_of': give a list with at least one grader, nested at most 8 deep")
        ]


def test_a_grader_with_several_mistakes_is_told_of_each_once():
    choices = [
        {"name": "matches", "pattern": "(", "patern": 1},
        {"name": "equals", "as": 3, "expect": 1},
        {"name": "mine:judge", "as": "x", "level": 1, "more": 2},
        {"name": "schema", "schema": 3},
        {"name": "any_of", "graders": ["contain", {"name": "matches"}]},
        3,
    ]
    known = "contains, equals, matches, schema, model, command, all_of, any_of, or a function as module:name"
    found = list(find_grader_mistakes(choices, trusted=True))
    schema = [mistake for place, mistake in found if place == 3]
    assert len(schema) == 1
    assert [each for each in found if each[0] != 3] == [
        (
            0,
            (
                "the grader 'matches' has no parameter 'patern': did you mean 'pattern'? "
                f"use {', '.join((*NAMES_AND_PARAMETERS['matches'], 'as'))}"
            ),
        ),
        (
            1,
            (
                "the grader 'equals' has no parameter 'expect': did you mean 'expected'? "
                f"use {', '.join((*NAMES_AND_PARAMETERS['equals'], 'as'))}"
            ),
        ),
        (1, "as is 3: give one line of text, of at most 100 characters"),
        (2, "'mine:judge' takes no parameters, and has level, more: write a function without them"),
        (4, f"there is no grader 'contain': did you mean 'contains'? use {known}"),
        (4, "the grader 'matches' needs pattern: write {name = \"matches\", pattern = …}"),
        (5, '3 is no grader: give a name, as "contains", or a table with a name'),
    ]


def test_graders_that_are_built_are_nested_as_deep_as_those_of_a_file():
    deep: Any = "equals"
    for _ in range(8):
        deep = {"name": "any_of", "graders": [deep]}
    assert build_grader(deep, NO_CONTEXT).name == "any_of(" * 8 + "equals" + ")" * 8
    with pytest.raises(ConfigError, match="nested at most 8 deep"):
        build_grader({"name": "any_of", "graders": [deep]}, NO_CONTEXT)
