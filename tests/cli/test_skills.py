"""`perdure skills`: what there is, and what of it is trusted."""

import json
import stat

import pytest

GOOD = "---\nname: {name}\ndescription: Does {name}.\n---\n# How to {name}\n"


@pytest.fixture
def place(perdure, tmp_path, monkeypatch):
    """A project in the working directory and a home beside it; writes a skill into either."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "project/.git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")

    def write(name, text=GOOD, *, at="project", **files):
        directory = tmp_path / at / ".agents/skills" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "SKILL.md").write_text(text.replace("{name}", name), encoding="utf-8")
        for file, content in files.items():
            (directory / f"{file}.md").write_text(content, encoding="utf-8")
        return directory

    return write


def states(perdure):
    result = perdure("skills", "list")
    assert result.exit_code == 0, result.output
    return {line.split()[2]: line.split()[0] for line in result.stdout.splitlines()}


def test_a_list_says_which_skills_are_used(perdure, place):
    place("rope")
    place("oar", at="user")
    place("secret", "---\nname: secret\ndescription: x\nhidden: true\n---\n.", at="user")
    result = perdure("skills", "list")
    assert result.stdout.splitlines() == [
        "used       user     oar     Does oar.",
        "hidden     user     secret  x",
        "untrusted  project  rope    Does rope.",
    ]
    assert "perdure skills show NAME" in result.stderr


def test_an_empty_list_says_where_skills_go(perdure, place):
    result = perdure("skills", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert ".agents/skills/NAME/SKILL.md" in result.stderr


def test_a_bad_skill_is_a_warning_and_the_others_are_listed(perdure, place):
    place("bad", "---\nname: bad\n---\n", at="user")
    place("good", at="user")
    result = perdure("skills", "list")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["used       user     good  Does good."]
    assert "warning: the skill in " in result.stderr
    assert "its description is missing" in result.stderr


def test_trust_holds_until_something_changes_or_it_is_taken_back(perdure, place, tmp_path):
    directory = place("rope")
    assert states(perdure) == {"rope": "untrusted"}
    assert "is trusted as it is now" in perdure("skills", "trust", "rope").stderr
    assert states(perdure) == {"rope": "used"}
    (directory / "SKILL.md").write_text(GOOD.replace("{name}", "rope") + "more")
    assert states(perdure) == {"rope": "changed"}
    assert perdure("skills", "trust", "rope").exit_code == 0
    assert states(perdure) == {"rope": "used"}
    assert "is no longer trusted" in perdure("skills", "revoke", "rope").stderr
    assert states(perdure) == {"rope": "untrusted"}
    assert "is not trusted" in perdure("skills", "revoke", "rope").stderr
    assert stat.S_IMODE((tmp_path / "home/trusted-skills.json").stat().st_mode) == 0o600


def test_a_skill_is_shown_before_it_is_trusted(perdure, place):
    text = "---\nname: rope\ndescription: Knots.\nlicense: MIT\nallowed-tools: Bash(rm:*)\n---\nTie it.\x1b[2J\n"
    directory = place("rope", text, faq="Why?")
    result = perdure("skills", "show", "rope")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:4] == [
        "name           rope",
        "description    Knots.",
        "state          untrusted",
        f"directory      {directory}",
    ]
    assert "allowed tools  Bash(rm:*) (requested by the skill, not granted)" in lines
    assert "sections       faq" in lines
    assert lines[-1] == "Tie it."
    assert "invisible characters" in result.stdout


def test_programs_get_json(perdure, place):
    place("rope", faq="Why?")
    (listed,) = map(json.loads, perdure("skills", "list", "--json").stdout.splitlines())
    assert (listed["name"], listed["source"], listed["state"]) == ("rope", "project", "untrusted")
    assert json.loads(perdure("skills", "trust", "rope", "--json").stdout)["state"] == "used"
    shown = json.loads(perdure("skills", "show", "rope", "--json").stdout)
    assert (shown["body"], shown["sections"], shown["state"]) == ("# How to rope", ["faq"], "used")
    assert json.loads(perdure("skills", "revoke", "rope", "--json").stdout)["state"] == "untrusted"
    assert perdure("skills", "list", "--json").exit_code == 0


@pytest.mark.parametrize("command", ["show", "trust", "revoke"])
def test_an_unknown_name_lists_what_there_is(perdure, place, command):
    place("rope")
    place("oar", at="user")
    result = perdure("skills", command, "anchor")
    assert result.exit_code == 2
    assert result.stderr == "error: there is no skill 'anchor' here; available: oar, rope\n"


@pytest.mark.parametrize(("command", "advice"), [("trust", "it needs no trust"), ("revoke", "delete it")])
def test_ones_own_skill_needs_no_trust(perdure, place, command, advice):
    place("oar", at="user")
    result = perdure("skills", command, "oar")
    assert result.exit_code == 2
    assert advice in result.stderr


def test_of_two_with_one_name_the_untrusted_one_is_trusted(perdure, place):
    place("rope", at="user")
    place("rope")
    assert perdure("skills", "show", "rope").stdout.splitlines()[2] == "state          used"
    assert perdure("skills", "trust", "rope").exit_code == 0
    assert "project" in perdure("skills", "list").stdout


def test_a_hostile_description_cannot_act_on_the_terminal(perdure, place):
    place("rope", '---\nname: rope\ndescription: "a\\e[2Jb\\u202ec\\u0007d"\n---\n.')
    assert "abcd" in perdure("skills", "list").stdout


def test_without_a_command_there_is_help(perdure):
    result = perdure("skills")
    assert result.exit_code == 0
    assert "trust" in result.stdout
