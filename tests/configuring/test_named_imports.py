"""Tools by where they are imported from."""

import pytest

from perdure.configuring.named_imports import import_tools
from perdure.core.error import ConfigError
from perdure.toolkits.inbox_tool import post_to_inbox

SOURCE = '''
from perdure import tool

@tool
async def one() -> str:
    """One."""
    return "1"

@tool
async def two() -> str:
    """Two."""
    return "2"

class Box:
    tools = [one, two]

some = (one, two)
mixed = [one, 7]
def plain() -> None: ...
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "made_up_tools.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "made_up_failure.py").write_text("raise OSError('no disk')", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "made_up_tools", raising=False)


def test_one_tool_is_found():
    assert import_tools("perdure.toolkits.inbox_tool:post_to_inbox") == [post_to_inbox]


@pytest.mark.parametrize(
    ("place", "names"), [("some", ["one", "two"]), ("Box.tools", ["one", "two"]), ("two", ["two"])]
)
def test_a_list_of_tools_is_taken_as_it_is(module, place, names):
    assert [each.name for each in import_tools(f"made_up_tools:{place}")] == names


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("no_such_module:x", "ModuleNotFoundError"),
        ("made_up_failure:x", "OSError: 'no disk'"),
        ("made_up_tools:on", "there is no 'on' in it; did you mean 'one'?"),
        ("made_up_tools:zzz", "there is no 'zzz' in it"),
        ("made_up_tools:plain", "and no tool: decorate a function with @tool"),
        ("made_up_tools:mixed", "7, and no tool"),
    ],
)
def test_what_is_no_tool_is_refused(module, place, complaint):
    with pytest.raises(ConfigError) as caught:
        import_tools(place)
    assert complaint in str(caught.value)
