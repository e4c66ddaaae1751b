"""Cases and datasets as values: ids, digests, selections and bad input."""

import pytest

from perdure import ConfigError, Limits
from perdure.evaluating import Case, Dataset
from perdure.grading import function_grader


def test_an_id_is_made_of_the_prompt_and_stays_when_cases_are_added():
    first = Dataset("d", [Case(prompt="What is 6 * 7?"), Case(prompt="  ?!  "), Case(prompt="What is 6 * 7?")])
    assert [case.id for case in first.cases] == ["what-is-6-7", "case", "what-is-6-7-2"]
    second = Dataset("d", [Case(prompt="New."), *first.cases])
    assert [case.id for case in second.cases][1:] == [case.id for case in first.cases]


def test_a_derived_id_does_not_take_one_that_was_given():
    dataset = Dataset("d", [Case(prompt="Hello"), Case(prompt="Bye", id="hello")])
    assert [case.id for case in dataset.cases] == ["hello-2", "hello"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": " "}, "give non-empty text"),
        ({"id": "a\nb"}, "without line breaks"),
        ({"id": "x" * 101}, "at most 100 characters"),
        ({"tags": "one"}, "give a list of words"),
        ({"tags": [""]}, "give a list of words"),
        ({"graders": "contains"}, 'give a list, such as ["contains"]'),
        ({"repeat": 0}, "1 or more"),
        ({"expcted": "x"}, "expected"),
    ],
)
def test_a_wrong_field_of_a_case_is_named(fields, message):
    with pytest.raises(ConfigError, match="Case") as caught:
        Case(**{"prompt": "Hello", **fields})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "cases", "message"),
    [
        ("", [Case(prompt="x")], "non-empty"),
        ("two\nlines", [Case(prompt="x")], "line breaks"),
        ("d", [], "at least one case"),
        ("d", ["x"], "give a list of Case"),
        ("d", [Case(prompt="x", id="a"), Case(prompt="y", id="a")], "two cases have this id"),
    ],
)
def test_a_wrong_dataset_is_named(name, cases, message):
    with pytest.raises(ConfigError, match=message):
        Dataset(name, cases)


def test_the_digest_of_a_run_has_what_the_run_depends_on():
    case = Case(prompt="Hello", expected="x", graders=["equals"])
    assert case.run_digest == Case(prompt="Hello", expected="y", tags=["t"]).run_digest
    others = [
        Case(prompt="Bye"),
        Case(prompt="Hello", deps=1),
        Case(prompt="Hello", limits=Limits(max_turns=3)),
        Case(prompt="Hello", output={"type": "object"}),
    ]
    assert len({each.run_digest for each in [case, *others]}) == 5


def test_the_digest_of_the_grades_has_the_expected_value_and_the_graders():
    def judge(evidence):
        return True

    cases = [
        Case(prompt="Hello", expected="x", graders=["equals"]),
        Case(prompt="Hello", expected="y", graders=["equals"]),
        Case(prompt="Hello", expected="x", graders=[{"name": "equals", "ignore_case": True}]),
        Case(prompt="Hello", expected="x", graders=[{"name": "equals", "ignore_case": False}]),
        Case(prompt="Hello", expected="x", graders=["contains"]),
        Case(prompt="Hello", expected="x", graders=[function_grader(judge, name="fair")]),
        Case(prompt="Hello", expected="x", graders=[function_grader(judge, name="strict")]),
        Case(prompt="Hello", expected="x", graders=[judge]),
        Case(prompt="Bye", expected="x", graders=["equals"]),
    ]
    assert len({each.grading_digest for each in cases}) == len(cases)
    assert cases[7].grading_digest == Case(prompt="Hello", expected="x", graders=[judge]).grading_digest


def test_cases_are_selected_by_id_and_tag():
    dataset = Dataset("d", [Case(prompt="a", tags=["x", "y"]), Case(prompt="b", tags=["y"]), Case(prompt="c")])
    assert dataset.select() is dataset
    assert [case.id for case in dataset.select(tags=["y"]).cases] == ["a", "b"]
    assert [case.id for case in dataset.select(ids=["c"], tags=["x"]).cases] == ["a", "c"]


@pytest.mark.parametrize(
    ("given", "message"), [({"ids": ["capitol"]}, "capital"), ({"tags": ["geo"]}, "no case has it")]
)
def test_what_no_case_has_cannot_be_selected(given, message):
    dataset = Dataset("d", [Case(prompt="x", id="capital", tags=["geography"])])
    with pytest.raises(ConfigError, match=message):
        dataset.select(**given)


def test_objects_that_are_the_same_in_another_process_have_the_same_digest():
    class Harbour:
        pass

    def build(harbour):
        return Case(prompt="When?", deps={"harbour": harbour, "sail": lambda: 1}, expected=harbour)

    one, other = build(Harbour()), build(Harbour())
    assert (one.run_digest, one.grading_digest) == (other.run_digest, other.grading_digest)
    assert Case(prompt="read at 0x1f").run_digest != Case(prompt="read at 0x2f").run_digest


def test_text_that_cannot_be_encoded_is_mended():
    case = Case(prompt="a\ud800", id="\udc80", tags=["\udfff"])
    assert (case.prompt, case.id, case.tags) == ("a\ufffd", "\ufffd", ("\ufffd",))
