"""`perdure sessions fork` and `tree`: sessions that begin like others."""

import json

import pytest

from perdure._cli.sessions.sessions import _group_by_parent, _walk_tree
from perdure.stores import SessionInfo


@pytest.fixture
def forked(perdure):
    """A session with two forks, one of which has a fork, and a session beside them."""
    for name in ("root", "other"):
        perdure("run", "-q", "--session", name, "Calculate 6 * 7")
    for arguments in (["root", "left", "--at", "3"], ["root", "right"], ["left", "leaf", "--at", "2"]):
        assert perdure("sessions", "fork", *arguments).exit_code == 0


@pytest.mark.usefixtures("kept")
def test_a_fork_begins_like_the_session_and_goes_its_own_way(perdure):
    result = perdure("sessions", "fork", "beta", "new")
    assert (result.exit_code, result.stdout) == (0, "new\n")
    assert result.stderr == 'session new begins with 10 entries; go on with: perdure run -s new "…"\n'
    perdure("run", "-q", "-s", "new", "Calculate 1 + 1")
    assert "says: 2" in perdure("sessions", "show", "new").stdout
    assert "says: 2" not in perdure("sessions", "show", "beta").stdout


@pytest.mark.usefixtures("kept")
def test_a_fork_that_nobody_named_tells_its_name(perdure):
    made = json.loads(perdure("sessions", "fork", "beta", "--at", "4", "--json").stdout)
    assert (made["entries"], made["parent"], made["at"]) == (4, "beta", 4)
    assert perdure("sessions", "show", made["session_id"]).exit_code == 0


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nobody"], 66, "there is no session 'nobody'"),
        (["beta", "alpha"], 73, "'alpha'"),
        (["beta", "new", "--at", "1000"], 2, "1000"),
        (["beta", "new", "--at", "0"], 2, "invalid value for '--at'"),
    ],
)
def test_a_fork_that_cannot_be_made_says_why(perdure, arguments, code, message):
    result = perdure("sessions", "fork", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


@pytest.mark.usefixtures("forked")
def test_a_tree_shows_who_comes_from_whom(perdure):
    drawn = perdure("sessions", "tree").stdout
    assert "└─ leaf at 2  2 entries  Calculate 6 * 7\n" in drawn
    assert "other  10 entries  Calculate 6 * 7\n" in drawn
    only = perdure("sessions", "tree", "left").stdout
    assert "other" not in only
    assert only.startswith("root  10 entries")
    assert "─ left * at 3  3 entries  Calculate 6 * 7\n" in only
    assert "─ right at 10  10 entries  Calculate 6 * 7\n" in only


@pytest.mark.usefixtures("forked")
def test_a_tree_for_programs_tells_depth_and_parent(perdure):
    nodes = [json.loads(line) for line in perdure("sessions", "tree", "leaf", "--json").stdout.splitlines()]
    assert {node["session_id"]: (node["depth"], node["parent"]) for node in nodes} == {
        "root": (0, ""),
        "left": (1, "root"),
        "right": (1, "root"),
        "leaf": (2, "left"),
    }


def test_a_tree_of_nobody_is_an_error(perdure):
    assert perdure("sessions", "tree").stdout == ""
    assert perdure("sessions", "tree", "nobody").exit_code == 66


def test_branches_are_drawn_to_their_ends():
    names = {"a": "", "b": "a", "c": "b", "d": "a", "e": "d", "f": ""}
    infos = [SessionInfo(name, 1, 0.0, 0.0, parent=parent) for name, parent in names.items()]
    forks = _group_by_parent(infos)
    assert [f"{margin}{info.session_id}" for _, margin, info in _walk_tree(forks[""], forks)] == [
        "a",
        "├─ b",
        "│  └─ c",
        "└─ d",
        "   └─ e",
        "f",
    ]


def test_a_very_long_line_of_forks_is_drawn():
    infos = [SessionInfo(str(number), 1, 0.0, 0.0, parent=str(number - 1) if number else "") for number in range(5000)]
    assert [depth for depth, _, _ in _walk_tree(infos[:1], _group_by_parent(infos))] == list(range(5000))
