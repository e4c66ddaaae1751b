"""The tools of an agent by their names."""

from typing import Any

import pytest

from perdure import ConfigError, Tool, Toolbox, ToolContext, tool
from perdure._core.model.cache import hash_request_part


def named(name: str) -> Tool[..., Any]:
    @tool(name=name, description=f"Does {name}.")
    async def act() -> str:
        return name

    return act


READ, WRITE, REMOVE = named("read_file"), named("write_file"), named("remove")


def test_tools_are_listed_in_their_order_and_found_by_name():
    box = Toolbox([WRITE, READ])
    assert (box.names, list(box), len(box), repr(box)) == (
        ("write_file", "read_file"),
        [WRITE, READ],
        2,
        "Toolbox(write_file, read_file)",
    )
    assert (box.get("read_file"), box.get("remove")) == (READ, None)
    assert ("read_file" in box, "remove" in box) == (True, False)
    assert box.specs == (WRITE.spec, READ.spec)
    assert box.specs is box.specs
    assert box.specs_hash == hash_request_part((WRITE.spec, READ.spec))


def test_tools_can_be_added_and_left_out():
    box = Toolbox([WRITE, READ]).with_tools([REMOVE])
    assert box.names == ("write_file", "read_file", "remove")
    assert box.with_only(["remove", "write_file"]).names == ("write_file", "remove")
    assert box.with_only([]).names == ()
    assert box.with_only(["read_file", "to_come"], later=["to_come"]).names == ("read_file",)
    with pytest.raises(ConfigError) as caught:
        box.with_only(["read_file", "to_come"], later=["other"])
    assert str(caught.value) == "there is no tool 'to_come'; available: write_file, read_file, remove"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Read_File", "did you mean 'read_file' or 'write_file'? available: write_file, read_file, remove"),
        ("remov", "did you mean 'remove'? available: write_file, read_file, remove"),
        ("xyz", "available: write_file, read_file, remove"),
    ],
)
def test_similar_names_are_suggested_the_nearest_first(name, told):
    assert Toolbox([WRITE, READ, REMOVE]).suggest_names(name) == told


def test_without_tools_there_is_nothing_to_suggest():
    assert Toolbox().suggest_names("read_file") == "there are no tools"


class Shop:
    @tool
    async def buy(self) -> str:
        """Buy."""
        return "bought"


def plain() -> str:
    return "done"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("shell", "tools='shell': give a list of tools"),
        (5, "tools=5: give a list of tools"),
        ([5], "5 is not a tool: use @tool on a function, or tool_from_schema(…)"),
        ([plain], f"{plain!r} is not a tool yet: mark it with @tool"),
        ([Shop.buy], "tool 'buy' is an unbound method: get it from an object, as in `thing.buy`"),
        ([READ, WRITE, READ], "two tools are called 'read_file': give one of them another name with @tool(name=…)"),
    ],
)
def test_what_is_no_list_of_tools_is_refused(given, told):
    with pytest.raises(ConfigError) as caught:
        Toolbox(given)
    assert str(caught.value) == told


def test_the_tool_that_needs_dependencies_is_known():
    @tool
    async def pay(context: ToolContext[int]) -> str:
        """Pay."""
        return str(context.deps)

    assert Toolbox([READ]).tool_needing_deps is None
    assert Toolbox([READ, pay, WRITE]).tool_needing_deps is pay
