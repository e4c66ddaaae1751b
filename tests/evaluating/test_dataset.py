"""Cases and datasets as values: ids, digests, selections and bad input."""

import pytest

from perdure import ConfigError, Limits
from perdure.evals import Case, Dataset, function_grader


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
        ({"id": 3}, "Case(id=3): give text"),
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


def test_each_further_case_of_the_same_prompt_has_the_next_number():
    dataset = Dataset("d", [Case(prompt="Hello"), Case(prompt="Bye", id="hello-3"), *[Case(prompt="Hello")] * 3])
    assert [case.id for case in dataset.cases] == ["hello", "hello-3", "hello-2", "hello-4", "hello-5"]


def test_a_derived_id_has_at_most_forty_characters_and_ends_with_a_word():
    dataset = Dataset("d", [Case(prompt="x" * 40), Case(prompt="y" * 41), Case(prompt="z" * 39 + " and more")])
    assert [case.id for case in dataset.cases] == ["x" * 40, "y" * 40, "z" * 39]


def test_an_id_may_have_a_hundred_characters():
    assert Case(prompt="Hello", id="x" * 100).id == "x" * 100


def test_a_selection_says_that_it_is_one_and_what_is_not_known_is_told_with_what_is():
    dataset = Dataset("d", [Case(prompt="x", id="capital", tags=["geo"]), Case(prompt="y", id="river")], "cases.toml")
    chosen = dataset.select(ids=["river"])
    assert (chosen.name, chosen.path, chosen.is_selection, dataset.is_selection) == ("d", "cases.toml", True, False)
    with pytest.raises(ConfigError) as refused:
        dataset.select(ids=["rivers"])
    assert str(refused.value) == (
        "Dataset.select(ids='rivers'): no case has it; did you mean 'river'? known: capital, river"
    )
    with pytest.raises(ConfigError) as refused:
        dataset.select(tags=["x"])
    assert str(refused.value) == "Dataset.select(tags='x'): no case has it; known: geo"


def test_the_digest_of_a_grader_is_that_of_its_name_or_its_class():
    class Judge:
        async def grade(self, evidence):
            return True

    def digest(grader) -> str:
        return Case(prompt="Hello", graders=[grader]).grading_digest

    class Named(Judge):
        name = "fair"

    class Odd(Judge):
        name = 3

    assert digest(Judge()) == digest(Judge()) == digest(Judge.__qualname__)
    assert digest(Named()) == digest("fair")
    assert len({digest(each) for each in (Judge(), Named(), Odd(), "fairer")}) == 4
    assert len(digest("fair")) == 16


def test_a_case_is_run_once_and_has_nothing_that_it_is_not_given():
    case = Case(prompt="Hello")
    assert (case.id, case.expected, case.graders, case.tags, case.deps, case.limits, case.output, case.repeat) == (
        *("", None, (), ()),
        *(None, None, None, 1),
    )
