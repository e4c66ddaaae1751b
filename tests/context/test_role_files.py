"""Roles in files."""

import logging
import os

import pytest

from perdure import ConfigError
from perdure._context.role_files import MOST_BYTES, MOST_FILES, find_role
from perdure.context import Role, load_roles


def test_a_file_has_its_fields_at_the_top_and_its_instructions_below(tmp_path):
    (tmp_path / "reviewer.md").write_text(
        "---\nname: Reviewer\ndescription: Finds faults\nmodel: demo\n---\n\nLook twice.\n", encoding="utf-8"
    )
    assert load_roles(tmp_path) == [Role("Reviewer", "Look twice.", "Finds faults", "demo")]


def test_the_name_defaults_to_that_of_the_file(tmp_path):
    (tmp_path / "writer.md").write_text("Write.", encoding="utf-8")
    (tmp_path / "editor.md").write_text("---\nunknown: [1, 2]\n---\nEdit.", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("not a role", encoding="utf-8")
    assert load_roles(tmp_path) == [Role("editor", "Edit."), Role("writer", "Write.")]


def test_there_need_be_no_folder(tmp_path):
    problems: list[str] = []
    assert load_roles(tmp_path / "roles", problems=problems) == []
    assert problems == []


def test_a_file_that_cannot_be_used_is_told_and_the_others_load(tmp_path):
    (tmp_path / "a-good.md").write_text("Good.", encoding="utf-8")
    (tmp_path / "b-again.md").write_text("---\nname: a-good\n---\nTwice.", encoding="utf-8")
    (tmp_path / "c-empty.md").write_text("---\nname: c\n---\n", encoding="utf-8")
    (tmp_path / "d-list.md").write_text("---\nname: [a, b]\n---\nList.", encoding="utf-8")
    (tmp_path / "e-open.md").write_text("---\nname: e\n", encoding="utf-8")
    (tmp_path / "f-bytes.md").write_bytes(b"one\n\xff\n")
    (tmp_path / "g-long.md").write_bytes(b"x" * (MOST_BYTES + 1))
    os.mkfifo(tmp_path / "h-pipe.md")
    (tmp_path / "i-folder.md").mkdir()
    (tmp_path / "j-link.md").symlink_to("/etc/hostname")
    (tmp_path / "k-good.md").write_text("Good too.", encoding="utf-8")
    problems: list[str] = []
    assert [role.name for role in load_roles(tmp_path, problems=problems)] == ["a-good", "k-good"]
    for problem, reason in zip(
        problems,
        [
            "another file has 'a-good' already",
            "give non-empty text",
            "line 2: 'name' is not text",
            "line 1",
            "not UTF-8 on line 2",
            "bytes, and the limit is 262,144",
            "no regular file",
            "is a directory",
            "leads out of the folder",
        ],
        strict=True,
    ):
        assert "is left out" in problem
        assert reason in problem


def test_without_a_list_problems_are_logged(tmp_path, caplog):
    (tmp_path / "empty.md").touch()
    with caplog.at_level(logging.WARNING, logger="perdure"):
        assert load_roles(tmp_path) == []
    assert "is left out" in caplog.text


def test_a_file_in_place_of_the_folder_is_told(tmp_path):
    (tmp_path / "roles").touch()
    problems: list[str] = []
    assert load_roles(tmp_path / "roles", problems=problems) == []
    assert "cannot be read" in problems[0]


def test_of_very_many_files_the_first_are_read(tmp_path):
    for number in range(MOST_FILES + 1):
        (tmp_path / f"{number:04}.md").write_text("x", encoding="utf-8")
    problems: list[str] = []
    assert len(load_roles(tmp_path, problems=problems)) == MOST_FILES
    assert f"of which the first {MOST_FILES} are read" in problems[0]


def test_no_path_is_refused():
    with pytest.raises(ConfigError, match=r"load_roles\(directory=7\)"):
        load_roles(7)  # type: ignore[arg-type]


def test_a_role_is_chosen_by_name():
    roles = [Role("writer", "Write."), Role("reviewer", "Look.")]
    assert find_role(roles, "reviewer") is roles[1]


def test_an_unknown_role_is_an_error_that_lists_what_there_is():
    roles = [Role("writer", "Write."), Role("reviewer", "Look.")]
    with pytest.raises(ConfigError) as caught:
        find_role(roles, "reviewr")
    assert str(caught.value) == "there is no role 'reviewr'; did you mean 'reviewer'? there are 'reviewer', 'writer'"
    with pytest.raises(ConfigError, match=r"there is no role 7; there are 'reviewer', 'writer'"):
        find_role(roles, 7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="there are no roles at all"):
        find_role([], "reviewer")


def test_of_two_roles_of_a_name_the_first_is_chosen():
    assert find_role([Role("a", "code"), Role("a", "file")], "a") == Role("a", "code")
