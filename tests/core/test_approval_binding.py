"""The identity that an approval is bound to."""

from perdure import tool
from perdure.core.approval_binding import (
    KEEPS_GRANTS_OF,
    ApprovalBinding,
    build_unique_session_key,
    identify_store,
    identify_tool,
    list_session_keys,
)
from perdure.core.event import RunStarted, SessionConfigured
from perdure.core.fold import State


def look(where: str = "") -> str:
    """Look."""
    return where


def watch(where: str = "") -> str:
    """Look."""
    return where


def test_a_tool_is_another_one_if_anything_about_it_differs():
    class Looking:
        """An object that can be called."""

        def __call__(self, where: str = "") -> str:
            """Look."""
            return where

    made = [
        tool(look),
        tool(look, name="glance"),
        tool(look, description="Look around."),
        tool(watch, name="look"),
        tool(Looking(), name="look", description="Look."),
    ]
    assert len({identify_tool(each) for each in made}) == len(made)
    assert identify_tool(tool(look)) == identify_tool(tool(look))
    assert made[0].source == "tests.core.test_approval_binding:look"
    assert made[4].source.endswith("Looking")


def test_a_store_without_an_identity_has_one_as_long_as_it_lives():
    class Named:
        identity = "named"

    class Plain:
        pass

    class Slim:
        __slots__ = ()

    assert identify_store(Named()) == "named"
    for kind in (Plain, Slim):
        first, second = kind(), kind()
        assert identify_store(first) == identify_store(first) != identify_store(second)


def test_a_session_is_told_by_its_first_run_also_by_its_subagents():
    state = State()
    assert build_unique_session_key("s", state) == "s@"
    state.apply(RunStarted("boss", run_id="r1"))
    state.apply(RunStarted("boss", run_id="r2"))
    child = state.get_child("scout")
    child.apply(RunStarted("scout", run_id="r2/c", path="scout"))
    assert build_unique_session_key("s", state) == build_unique_session_key("s", child) == "s@r1"
    state.apply(SessionConfigured({KEEPS_GRANTS_OF: ["p@r0"]}))
    assert list_session_keys("s", child) == ["s@r1", "p@r0"]


def test_an_agent_is_above_itself_and_those_that_work_for_it():
    boss = ApprovalBinding(agent="boss")
    assert boss.is_above(boss)
    assert boss.is_above(ApprovalBinding(agent="boss/scout"))
    assert not boss.is_above(ApprovalBinding(agent="bossy"))
    assert not boss.is_same_session(ApprovalBinding(store="other"))
    assert not boss.is_same_session(ApprovalBinding(project="other"))


def test_a_session_is_the_same_through_its_store_and_through_parts_of_it():
    whole, part = ApprovalBinding(store="X", session="a/b/k@r"), ApprovalBinding(store="X/a//b/", session="a/b/k@r")
    assert whole.is_same_session(part)
    assert part.is_same_session(whole)
    assert part.is_same_session(ApprovalBinding(store="X/a/", session="a/b/k@r"))
    assert not part.is_same_session(ApprovalBinding(store="X/b/", session="a/b/k@r"))
    assert not whole.is_same_session(
        ApprovalBinding(store="X/a", session="a/b/k@r")
    )  # another store, and no part of this one
    assert not whole.is_same_session(ApprovalBinding(store="X", session="k@r"))
    assert whole.session_id == "a/b/k"


def test_a_part_of_a_store_has_the_sessions_that_begin_with_its_prefix():
    part = ApprovalBinding(store="X/a//b/", session="")
    assert part.has_in_store(ApprovalBinding(store="X/a//b/", session="a/b/k@r"))
    assert part.has_in_store(ApprovalBinding(store="X", session="a/b/k@r"))
    assert not part.has_in_store(ApprovalBinding(store="X", session="a/c/k@r"))
    assert not part.has_in_store(ApprovalBinding(store="Y", session="a/b/k@r"))
    assert not part.has_in_store(ApprovalBinding(store="X", session="a/b/k@r", project="other"))
    assert not ApprovalBinding(store="X").has_in_store(ApprovalBinding(store="X/a/", session="a/k@r"))


def test_a_session_that_an_older_version_named_by_its_id_in_a_part_is_recognized():
    old = ApprovalBinding(store="X/a//b/", session="k@r")
    assert old.names_session("k@r")
    assert old.names_session("a/b/k@r")
    assert not old.names_session("c/b/k@r")
    assert not old.names_session("other@r")
    assert not ApprovalBinding(store="X", session="k@r").names_session("a/b/k@r")
