"""Where skills are looked for, which of two counts, and how much is looked at."""

import os
import sys

import pytest

from perdure import ConfigError
from perdure._context.skills.loading import MAX_DEPTH, MAX_DIRECTORIES
from perdure.context import Trust, load_skills, load_skills_from


@pytest.fixture
def trust(tmp_path):
    return Trust(os.fspath(tmp_path / "data/trusted.json"))


def trusting_everything(ground, trust, workdir=None):
    """What is loaded once somebody has agreed to all that lies there now."""
    while untrusted := ground.load(trust, workdir).untrusted:  # of one name there is one at a time
        for skill in untrusted:
            trust.trust(skill)
    return ground.load(trust, workdir)


def test_three_folders_are_looked_at_in_the_project_and_at_home(ground, trust):
    for number, folder in enumerate([".perdure/skills", ".agents/skills", ".claude/skills"]):
        ground.skill(f"project-{number}", below=ground.workdir / folder)
        ground.skill(f"user-{number}", below=ground.home / folder)
    skills = trusting_everything(ground, trust)
    assert skills.names == ("project-0", "project-1", "project-2", "user-0", "user-1", "user-2")
    assert {each.source for each in skills} == {"project", "user"}
    assert skills.problems == ()


def test_directories_up_to_the_root_of_the_repository_are_looked_at(ground, trust):
    deep = ground.workdir / "packages/hull"
    deep.mkdir(parents=True)
    ground.skill("near", below=deep / ".agents/skills")
    ground.skill("between", below=deep.parent / ".agents/skills")
    ground.skill("root")
    ground.skill("beyond", below=ground.workdir.parent / ".agents/skills")
    assert trusting_everything(ground, trust, deep).names == ("between", "near", "root")


def test_outside_of_a_repository_the_working_directory_alone_is_looked_at(ground, trust):
    lone = ground.outside / "deep"
    lone.mkdir()
    ground.skill("here", below=lone / ".agents/skills")
    ground.skill("above", below=ground.outside / ".agents/skills")
    assert trusting_everything(ground, trust, lone).names == ("here",)


def test_the_users_own_skills_are_no_projects_when_home_is_the_working_directory(ground):
    ground.user_skill("own")
    skills = ground.load(workdir=ground.home)
    assert (skills.names, skills.untrusted) == (("own",), ())


def test_of_two_with_one_name_the_projects_counts_and_the_nearest_of_the_projects(ground, trust):
    deep = ground.workdir / "hull"
    deep.mkdir()
    nearest = ground.skill("rope", below=deep / ".perdure/skills")
    ground.skill("rope", below=deep / ".claude/skills")
    ground.skill("rope")
    ground.user_skill("rope")
    skills = trusting_everything(ground, trust, deep)
    assert skills.get("rope").path == os.fspath(nearest)
    # The three others are told once each.
    assert len(skills.problems) == 3
    assert all(f"{os.fspath(nearest)!r} has the same name 'rope'" in each for each in skills.problems)


def test_a_skill_that_nobody_trusts_does_not_take_the_place_of_the_users(ground, trust):
    ground.skill("rope", "---\nname: rope\ndescription: Hostile.\n---\nObey.")
    ground.user_skill("rope")
    skills = ground.load(trust)
    assert skills.get("rope").source == "user"
    assert [each.name for each in skills.untrusted] == ["rope"]
    assert skills.problems == ()


def test_skills_may_lie_deeper_but_not_below_one_another(ground):
    below = ground.home / ".agents/skills"
    ground.skill("ropes/bowline", "---\nname: bowline\ndescription: A knot.\n---\nTie.")
    ground.skill("ropes/bowline", "---\nname: bowline\ndescription: A knot.\n---\nTie.", below=below)
    ground.skill("ropes/bowline/inner", below=below)
    ground.skill("/".join(["deep"] * (MAX_DEPTH + 1)), below=below)
    ground.skill(".hidden/one", below=below)
    ground.skill("node_modules/one", below=below)
    assert ground.load().names == ("bowline",)


def test_no_more_directories_are_looked_at_than_anybody_would_wait_for(ground, monkeypatch):
    looked_at = []
    listdir = os.listdir

    def counting(path):
        looked_at.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", counting)
    below = ground.home / ".perdure/skills"
    ground.skill("a-good-one", below=below)
    for number in range(MAX_DIRECTORIES + 100):
        (below / f"d{number:05}").mkdir()
    skills = ground.load()
    assert len(looked_at) == MAX_DIRECTORIES
    assert skills.names == ("a-good-one",)
    (problem,) = skills.problems
    assert f"{MAX_DIRECTORIES} directories were looked at" in problem


def test_a_directory_that_cannot_be_read_is_told_and_the_others_are_found(ground, monkeypatch):
    ground.user_skill("good")
    closed = ground.skill("x", below=ground.home / ".perdure/skills").parent
    listdir = os.listdir

    def refusing(path):
        if path == os.fspath(closed):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refusing)
    skills = ground.load()
    assert skills.names == ("good",)
    (problem,) = skills.problems
    assert problem == f"{os.fspath(closed)!r} cannot be read (Permission denied): check its permissions"


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_that_leaves_the_project_is_left_out_with_a_message(ground, trust):
    ground.skill("good")
    (ground.workdir / ".agents/skills/evil").symlink_to(ground.skill("evil", below=ground.outside))
    skills = trusting_everything(ground, trust)
    assert skills.names == ("good",)
    (problem,) = skills.problems
    assert "evil" in problem
    assert "leads out of" in problem


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_inside_the_project_is_the_same_skill_and_found_once(ground, trust):
    ground.skill("rope")
    (ground.workdir / ".claude").mkdir()
    (ground.workdir / ".claude/skills").symlink_to(ground.workdir / ".agents/skills")
    skills = trusting_everything(ground, trust)
    assert (skills.names, skills.problems) == (("rope",), ())


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_links_in_circles_are_walked_once(ground):
    directory = ground.user_skill("rope").parent
    (directory / "again").symlink_to(directory)
    (directory / "again-too").symlink_to(directory.parent)
    skills = ground.load()
    assert (skills.names, skills.problems) == (("rope",), ())


def test_what_is_found_does_not_depend_on_the_order_of_the_disk(ground, monkeypatch):
    for name in ("c", "a", "b"):
        ground.user_skill(name, f"---\nname: same\ndescription: {name}.\n---\n.")
    listdir = os.listdir
    first = ground.load()
    monkeypatch.setattr(os, "listdir", lambda path: listdir(path)[::-1])
    second = ground.load()
    assert first.get("same").description == second.get("same").description == "a."
    assert first.problems == second.problems


def test_a_directory_that_is_named_is_vouched_for(ground):
    ground.skill("rope", below=ground.outside)
    skills = load_skills_from(os.fspath(ground.outside))
    assert [(each.name, each.source) for each in skills] == [("rope", "user")]


@pytest.mark.parametrize("load", [load_skills, load_skills_from])
@pytest.mark.parametrize("given", ["", None, 5, "no such directory"])
def test_a_directory_has_to_be_there(load, given):
    with pytest.raises(ConfigError):
        load(given)
