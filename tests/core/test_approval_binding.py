"""The identity that an approval is bound to."""

from pathlib import Path

import pytest

from perdure import tool
from perdure._core.tools.binding import (
    KEEPS_GRANTS_OF,
    build_approval_binding,
    build_unique_session_key,
    identify_tool,
    list_session_keys,
)
from perdure._core.values.binding import identify_store
from perdure.engines import State
from perdure.events import RunStarted, SessionConfigured
from perdure.permissions import ApprovalBinding


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


# -- bindings compared -------------------------------------------------------------------------------------------------


def bound(store: str, session: str = "s@r1", project: str = "/p") -> ApprovalBinding:
    return ApprovalBinding("t", "boss", store, project, session)


@pytest.mark.parametrize(
    ("session", "store", "widened"),
    [
        ("acme/s@r1", "db", "db/acme/"),
        ("acme/inner/s@r1", "db", "db/acme/inner/"),
        ("acme/s@r1", "db/acme/", "db/acme/"),
        ("s@r1", "db", "db"),
        ("s@r1", "db/acme/", "db/acme/"),
    ],
)
def test_a_binding_is_widened_to_all_sessions_of_its_tenant(session: str, store: str, widened: str) -> None:
    assert bound(store, session).widen_to_tenant() == ApprovalBinding("t", "boss", widened, "/p", "")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (bound("db"), bound("db"), True),
        (bound("db/acme/"), bound("db"), True),
        (bound("db"), bound("db/acme/"), True),
        (bound("db"), bound("other"), False),
        (bound("db2/"), bound("db"), False),
        (bound("db"), bound("db", "s@r2"), False),
        (bound("db"), bound("db", project="/q"), False),
    ],
)
def test_a_session_is_the_same_through_a_part_of_its_store(
    one: ApprovalBinding, other: ApprovalBinding, same: bool
) -> None:
    assert one.is_same_session(other) is same


@pytest.mark.parametrize(
    ("store", "other", "has"),
    [
        ("db", bound("db"), True),
        ("db", bound("db", "acme/s@r1"), False),
        ("db/acme/", bound("db/acme/", "acme/s@r1"), True),
        ("db/acme/", bound("db", "acme/s@r1"), True),
        ("db/acme/", bound("db", "other/s@r1"), False),
        ("db/acme//inner/", bound("db/acme/inner/", "acme/inner/s@r1"), True),
        ("db/acme/", bound("other", "acme/s@r1"), False),
        ("db", bound("db", project="/q"), False),
    ],
)
def test_a_store_has_the_sessions_of_its_part_and_a_whole_one_those_without_a_tenant(
    store: str, other: ApprovalBinding, has: bool
) -> None:
    assert bound(store, "").has_in_store(other) is has


def test_stores_agents_and_sessions_of_bindings_are_compared() -> None:
    assert bound("db", "a@1").is_same_store(bound("db", "b@2"))
    assert not bound("db").is_same_store(bound("other"))
    assert not bound("db").is_same_store(bound("db", project="/q"))
    above, below, beside = [ApprovalBinding(agent=each) for each in ("boss", "boss/scout", "bossy")]
    assert [above.is_above(each) for each in (above, below, beside)] == [True, True, False]
    assert not below.is_above(above)
    assert (bound("db", "acme/s@r1").session_id, bound("db", "").session_id) == ("acme/s", "")


def test_a_binding_has_the_working_folder_for_a_project_unless_it_is_given_one() -> None:
    class Named:
        identity = "db"

    looking = tool(look)
    for given, project in (("/p", "/p"), ("", str(Path.cwd()))):
        binding = build_approval_binding(looking, agent="boss", store=Named(), project=given, session="s@r1")
        assert binding == ApprovalBinding(identify_tool(looking), "boss", "db", project, "s@r1")
