"""The identity that an approval is bound to."""

from perdure import tool
from perdure.core.binding import KEEPS_GRANTS_OF, Binding, identify_store, identify_tool, session_key, session_keys
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
    assert made[0].source == "tests.core.test_binding:look"
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
    assert session_key("s", state) == "s@"
    state.apply(RunStarted("boss", run_id="r1"))
    state.apply(RunStarted("boss", run_id="r2"))
    child = state.get_child("scout")
    child.apply(RunStarted("scout", run_id="r2/c", path="scout"))
    assert session_key("s", state) == session_key("s", child) == "s@r1"
    state.apply(SessionConfigured({KEEPS_GRANTS_OF: ["p@r0"]}))
    assert session_keys("s", child) == ["s@r1", "p@r0"]


def test_an_agent_is_above_itself_and_those_that_work_for_it():
    boss = Binding(agent="boss")
    assert boss.is_above(boss)
    assert boss.is_above(Binding(agent="boss/scout"))
    assert not boss.is_above(Binding(agent="bossy"))
    assert not boss.is_same_place(Binding(store="other"))
