"""Completion of commands, skills, arguments and files."""

import sys

import pytest

from tests.doubles import list_open_below

pytestmark = pytest.mark.packages("prompt_toolkit")


@pytest.fixture
def complete(tmp_path):
    """Completes a text in a folder with a few files."""
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from perdure._cli.chat.completion import ChatCompleter

    for path in ("src/main.py", "src/a b.py", "docs/main.md", ".gitignore", "build/x.py", "evil\x1b[2J.txt"):
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text("build\n" if path == ".gitignore" else "x")
    completer = ChatCompleter(
        {"help": "", "model": ""}, lambda: {"haiku": "Write one."}, lambda _: ["one"], str(tmp_path)
    )

    def run(text: str) -> list[str]:
        return [each.text for each in completer.get_completions(Document(text), CompleteEvent())]

    return run


def test_commands_and_skills_are_completed_at_the_beginning(complete):
    assert complete("/h") == ["haiku", "help"]
    assert complete("see /h") == []
    assert complete("/model o") == ["one"]


def test_files_are_completed_without_what_git_ignores_or_a_terminal_obeys(complete):
    assert {*complete("@")} == {"docs/main.md", "src/main.py", '"src/a b.py"', ".gitignore"}
    assert "build/x.py" not in complete("@")
    assert not any("\x1b" in each for each in complete("@"))
    assert complete("look at @main") == ["src/main.py", "docs/main.md"]
    assert complete("@srmn") == ["src/main.py"]
    assert complete("mail@main") == []


def test_a_folder_that_is_gone_has_no_files():
    from perdure._cli.chat.completion import list_mentionable_files

    assert list_mentionable_files("/no/such/folder") == []


def test_files_are_listed_anew_when_a_mention_begins(complete, tmp_path):
    assert complete("@new") == []
    (tmp_path / "new.txt").write_text("x")
    assert complete("@new") == []  # while one is typed, the list stays
    assert "new.txt" in complete("@")
    assert complete("@new") == ["new.txt"]


def test_the_best_path_comes_first_and_of_equal_ones_the_shortest():
    from perdure._cli.chat.completion import rank_paths

    paths = ["x/omega.py", "src/me.py", "me/long.py", "ME.md", "mx/e.py", "other.txt", "a/same.py"]
    assert rank_paths(paths, "me") == ["ME.md", "me/long.py", "src/me.py", "a/same.py", "x/omega.py", "mx/e.py"]
    assert rank_paths(paths, "zz") == []
    assert rank_paths(["b", "a"], "") == ["a", "b"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see what is open")
def test_listing_files_leaves_nothing_open(tmp_path):
    from perdure._cli.chat.completion import list_mentionable_files

    (tmp_path / "a.txt").write_text("x")
    assert list_mentionable_files(str(tmp_path)) == ["a.txt"]
    for _ in range(3):
        list_mentionable_files(str(tmp_path))
    assert list_open_below(tmp_path) == []


def test_only_so_many_files_are_offered(complete, tmp_path):
    from perdure._cli.chat.completion import MAX_OFFERED

    for number in range(MAX_OFFERED + 1):
        (tmp_path / f"many{number:03}").write_text("x")
    assert complete("@many") == [f"many{number:03}" for number in range(MAX_OFFERED)]
