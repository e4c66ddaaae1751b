"""Tools by where they are imported from."""

import pytest

from perdure import ConfigError
from perdure._config.imports import PythonFileContent, import_tools, is_import_path
from perdure.tools import post_to_inbox

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


def no_file(path):
    pytest.fail(f"{path} was read")


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "made_up_tools.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "made_up_failure.py").write_text("raise OSError('no disk')", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "made_up_tools", raising=False)


def test_one_tool_is_found():
    assert import_tools("perdure.tools:post_to_inbox", no_file) == [post_to_inbox]


@pytest.mark.parametrize(
    ("place", "names"), [("some", ["one", "two"]), ("Box.tools", ["one", "two"]), ("two", ["two"])]
)
def test_a_list_of_tools_is_taken_as_it_is(module, place, names):
    assert [each.name for each in import_tools(f"made_up_tools:{place}", no_file)] == names


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("no_such_module:x", "install it, or name a file beside perdure.toml, as in './tools.py:name'"),
        ("made_up_failure:x", "OSError: 'no disk'"),
        ("made_up_tools:on", "there is no 'on' in it; did you mean 'one'?"),
        ("made_up_tools:zzz", "there is no 'zzz' in it"),
        ("made_up_tools:plain", "and no tool: decorate a function with @tool"),
        ("made_up_tools:mixed", "7, and no tool"),
    ],
)
def test_what_is_no_tool_is_refused(module, place, complaint):
    with pytest.raises(ConfigError) as caught:
        import_tools(place, no_file)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("place", "is_right"),
    [
        ("package.module:name", True),
        ("./tools.py:name", True),
        ("../a b/tools.py:Box.tools", True),
        ("tools.py", False),
        ("./tools.txt:name", False),
        ("./tools.py:", False),
        ("/.py:name", False),
        ("7:name", False),
    ],
)
def test_the_form_of_a_place_is_checked(place, is_right):
    assert is_import_path(place) == is_right


def test_a_file_is_imported_once_from_the_bytes_that_are_given():
    read = []

    def source(path):
        read.append(path)
        return PythonFileContent("/nowhere/tools.py", SOURCE.encode())

    (one,) = import_tools("./tools.py:one", source)
    assert import_tools("./tools.py:some", source)[0] is one
    assert read == ["./tools.py", "./tools.py"]


def test_a_file_that_fails_is_not_kept(monkeypatch):
    def source(_):
        return PythonFileContent("/nowhere/tools.py", b"import no_such_neighbour")

    for _ in range(2):
        with pytest.raises(ConfigError, match=r"cannot be imported: ModuleNotFoundError: .*no_such_neighbour"):
            import_tools("./tools.py:one", source)


def test_an_isolated_tool_of_a_file_is_refused_with_what_to_do():
    isolated = SOURCE.replace("@tool\nasync def one", "@tool(isolate=True)\ndef one")

    def source(_):
        return PythonFileContent("/nowhere/tools.py", isolated.encode())

    with pytest.raises(ConfigError, match="put it into a package, and name it"):
        import_tools("./tools.py:one", source)
    assert import_tools("./tools.py:two", source)[0].name == "two"
