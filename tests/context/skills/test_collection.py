"""All skills of an agent: by name, in few words, and joined."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import ConfigError
from perdure.context import Skill, Skills


def skill(name, description="Does it.", **more):
    return Skill(name=name, description=description, body=f"How to {name}.", **more)


def lines_of(skills, budget_tokens=2000):
    return skills.catalogue(budget_tokens).splitlines()[4:]


def test_a_skill_is_found_by_its_name():
    skills = Skills([skill("rope"), skill("anchor", hidden=True)])
    assert skills.get("rope").body == "How to rope."
    assert skills.get("anchor").hidden
    assert (skills.names, len(skills), "rope" in skills, "x" in skills) == (("anchor", "rope"), 2, True, False)
    assert repr(skills) == "Skills(anchor, rope)"


def test_an_unknown_name_lists_what_there_is_and_not_what_is_hidden():
    with pytest.raises(ConfigError, match=r"there is no skill 'x'; available: oar, rope$"):
        Skills([skill("rope"), skill("oar"), skill("anchor", hidden=True)]).get("x")
    with pytest.raises(ConfigError, match="available: none"):
        Skills().get("x")


@pytest.mark.parametrize("wrong", ["rope", 5, ["rope"], [skill("a"), skill("a")]], ids=str)
def test_what_is_no_list_of_skills_is_refused(wrong):
    with pytest.raises(ConfigError):
        Skills(wrong)


def test_the_catalogue_begins_with_what_matters_most():
    skills = Skills([skill("b"), skill("a"), skill("z", priority=5), skill("y", priority=-1), skill("h", hidden=True)])
    assert skills.catalogue().startswith("## Available skills\n\n")
    assert lines_of(skills) == ["- z: Does it.", "- a: Does it.", "- b: Does it.", "- y: Does it."]


def test_without_skills_to_show_there_is_no_catalogue():
    assert Skills().catalogue() == ""
    assert Skills([skill("h", hidden=True)]).catalogue() == ""


def test_what_does_not_fit_is_named_alone_and_then_counted():
    skills = Skills([skill(f"s{number}", "x" * 35) for number in range(6)])
    assert lines_of(skills, 1000) == [f"- s{number}: {'x' * 35}" for number in range(6)]
    # 5 characters for a name alone, 37 more with its description.
    assert lines_of(skills, 30) == [f"- s0: {'x' * 35}", f"- s1: {'x' * 35}", "- s2", "- s3", "- s4", "- s5"]
    assert lines_of(skills, 8) == [f"- s{number}" for number in range(6)]
    assert lines_of(skills, 4) == ["- s0", "- s1", "- s2", "(and 3 more, for which there is no room here)"]
    assert lines_of(skills, 0) == ["(and 6 more, for which there is no room here)"]


ROWS = st.tuples(st.from_regex(r"[a-z0-9]{1,9}", fullmatch=True), st.text("ab ", min_size=1), st.integers(0, 3))


@given(st.lists(ROWS, unique_by=lambda row: row[0]), st.integers(0, 100))
def test_the_catalogue_keeps_its_budget_and_depends_on_the_skills_alone(rows, budget):
    given_skills = [skill(name, f"x{text}", priority=priority) for name, text, priority in rows]
    shuffled = random.Random(1).sample(given_skills, len(given_skills))
    catalogue = Skills(given_skills).catalogue(budget)
    assert catalogue == Skills(shuffled).catalogue(budget)
    listed = [line for line in catalogue.splitlines()[4:] if line.startswith("- ")]
    assert sum(len(line) + 1 for line in listed) <= budget * 4 + 1
    missing = len(rows) - len(listed)
    assert (f"(and {missing} more" in catalogue) == (missing > 0)


@pytest.mark.parametrize("budget", [-1, 1.5, "many", None])
def test_a_budget_is_a_whole_number(budget):
    with pytest.raises(ConfigError):
        Skills().catalogue(budget)


def test_of_two_collections_the_first_counts():
    one = Skills([skill("rope", "first")], problems=["one"])
    two = Skills([skill("rope", "second"), skill("oar")], problems=["two"], untrusted=[skill("new")])
    both = one + two
    assert both.names == ("oar", "rope")
    assert both.get("rope").description == "first"
    assert both.problems[:2] == ("one", "two")
    assert both.problems[2] == "two skills are called 'rope': the one from code is used, the one from code is not"
    assert [each.name for each in both.untrusted] == ["new"]
    with pytest.raises(TypeError):
        one + 5  # type: ignore[operator]
