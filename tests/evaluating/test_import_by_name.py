"""Objects that a user names: from a module or a file, imported once, with an error that says what is wrong."""

import sys

import pytest

from perdure import Agent, ConfigError
from perdure._work.judging.evals.imports import import_agent, import_from_module_or_file

SOURCE = """\
import beside_it
from perdure import Agent

count = [beside_it.number]
agent = Agent("demo", name="named")

def build():
    return Agent("demo", name="built")

def fail():
    raise RuntimeError("no key")
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file that imports another one beside it; what is imported here is forgotten afterwards."""
    (tmp_path / "beside_it.py").write_text("number = 3\n")
    (tmp_path / "things.py").write_text(SOURCE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = {*sys.modules}
    yield tmp_path / "things.py"
    for name in {*sys.modules} - known:
        del sys.modules[name]


def test_a_file_is_imported_once_and_finds_what_lies_beside_it(file):
    first = import_from_module_or_file(f"{file}:count")
    assert first == [3]
    assert import_from_module_or_file(f"{file}:count") is first
    assert sys.path.count(str(file.parent)) == 1


def test_a_folder_that_is_searched_already_is_not_added_again(file):
    sys.path.append(str(file.parent))
    assert import_from_module_or_file(f"{file}:count") == [3]
    assert sys.path.count(str(file.parent)) == 1


def test_a_module_is_searched_for_in_the_current_folder_too(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    for _ in range(2):
        assert import_from_module_or_file("things:count") == [3]
    assert sys.path.count(str(file.parent)) == 1


@pytest.mark.parametrize("place", ["", "things", ":name", "things:", "things.py"])
def test_a_place_without_a_module_or_a_name_is_refused(place):
    with pytest.raises(ConfigError) as error:
        import_from_module_or_file(place)
    assert str(error.value) == f"{place!r} names no object: write package.module:name, or path/to/file.py:name"


def test_a_file_that_is_not_there_or_fails_is_named(file):
    missing, broken = file.parent / "none.py", file.parent / "broken.py"
    broken.write_text("raise RuntimeError('no luck')\n")
    with pytest.raises(ConfigError) as error:
        import_from_module_or_file(f"{missing}:x")
    assert str(error.value) == f"there is no file {str(missing)!r}: name a Python file, as path/to/file.py:name"
    for _ in range(2):  # it is not remembered as imported
        with pytest.raises(ConfigError) as error:
            import_from_module_or_file(f"{broken}:x")
        assert str(error.value) == f"{str(broken)!r} cannot be imported: RuntimeError: no luck"


def test_an_agent_is_imported_or_built_by_the_function_that_is_named(file):
    assert [import_agent(f"{file}:{name}").name for name in ("agent", "build")] == ["named", "built"]
    assert isinstance(import_agent(f"{file}:agent"), Agent)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fail", " makes no agent: RuntimeError: no key"),
        ("count", " is [3], and no Agent(…), nor a function that returns one"),
    ],
)
def test_what_is_no_agent_is_named(file, name, message):
    with pytest.raises(ConfigError) as error:
        import_agent(f"{file}:{name}")
    assert str(error.value) == f"{f'{file}:{name}'!r}{message}"


def test_the_module_of_a_file_has_the_name_of_the_file_at_its_end(file):
    assert import_from_module_or_file(f"{file}:build").__module__.endswith("_things")
