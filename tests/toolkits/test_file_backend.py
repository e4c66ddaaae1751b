"""A backend that lacks a method is refused where the tool is made, and not when a model calls it."""

from types import SimpleNamespace
from typing import Any

import pytest

from perdure import ConfigError
from perdure.tools import (
    edit_tool,
    git_commit_tool,
    git_read_tools,
    glob_tool,
    grep_tool,
    list_tool,
    read_tool,
    write_tool,
)

PATHS = ("resolve", "check", "show")
CASES: list[tuple[Any, list[tuple[str, ...]]]] = [
    (read_tool, [(*PATHS, "read_file")]),
    (list_tool, [(*PATHS, "list_folder")]),
    (write_tool, [(*PATHS, "read_file", "write_file")]),
    (edit_tool, [(*PATHS, "read_file", "write_file")]),
    (glob_tool, [PATHS, ("search_lines", "find_files")]),
    (grep_tool, [PATHS, ("search_lines", "find_files")]),
    (git_read_tools, [PATHS, ("run_git",)]),
    (git_commit_tool, [PATHS, ("run_git",)]),
]


def make_backends(needed: list[tuple[str, ...]], without: str = "") -> list[Any]:
    return [SimpleNamespace(**{name: print for name in names if name != without}) for names in needed]


@pytest.mark.parametrize(("make", "needed"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_backend_without_one_of_the_methods_is_refused_by_name(make, needed):
    make(*make_backends(needed))
    for name in [name for names in needed for name in names]:
        with pytest.raises(ConfigError, match=rf"give a backend with {name}"):
            make(*make_backends(needed, without=name))


def test_a_class_is_no_backend():
    files: Any = type("Files", (), dict.fromkeys((*PATHS, "read_file"), print))
    read_tool(files())
    with pytest.raises(ConfigError, match="give a backend with resolve, check, show, read_file"):
        read_tool(files)
