"""The names that other programs trust: which paths have one, in which spelling, and which do not."""

import pytest

from perdure._io.files.protected import MADE_FOLDERS, PROTECTED_NAMES, TRUSTED, TRUSTED_NAMES, add_caution
from perdure._io.files.sensitive import find_blocking_pattern
from perdure.permissions import PathTarget


def caution(path):
    return add_caution(PathTarget(f"/project/{path}", "/project")).caution


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("AGENTS.md", "AGENTS.md"), ("a/b/AGENTS.md", "AGENTS.md"), ("agents.MD", "AGENTS.md"),
        ("AGENTS.md.", "AGENTS.md"), ("AGENTS.md ", "AGENTS.md"), ("\uff21GENTS.md", "AGENTS.md"),
        ("AGENTS\u200b.md", "AGENTS.md"), ("AGENTS.md::$DATA", "AGENTS.md"), ("sub\\AGENTS.md", "AGENTS.md"),
        (".github/workflows/ci.yml", ".github"), (".GitHub/copilot-instructions.md", ".github"), (".vscode", ".vscode"),
        (".vscode/tasks.json", ".vscode"), ("a/.cursor/rules/x.mdc", ".cursor"),
        (".cargo/config.toml", ".cargo/config.toml"),
        ("crates/x/.cargo/config", ".cargo/config"), ("gradle/wrapper/gradle-wrapper.properties", "gradle/wrapper"),
        ("my.code-workspace", "*.code-workspace"), ("lefthook.toml", "lefthook.*"),
        (".mise.local.toml", ".mise.*.toml"),
        (".claude/skills/a/SKILL.md", ".claude"), ("skills/a/SKILL.md", "SKILL.md"), (".agents/roles/a.md", ".agents"),
        (".clinerules", ".clinerules"), (".clinerules/a.md", ".clinerules"), ("tools/bazel", "tools/bazel"),
    ],
)  # fmt: skip
def test_a_name_counts_in_every_spelling_and_at_every_depth(path, pattern):
    assert caution(path) == f"other programs trust files like {pattern!r}"


@pytest.mark.parametrize(
    "path",
    [
        "README.md", "Makefile", "package.json", "pyproject.toml", "conftest.py", "setup.py", "Dockerfile",
        "build.gradle",
        ".gitignore", ".env.example", ".python-version", ".nvmrc", "src/agents.py", "docs/agents.md.txt", "config.toml",
        "cargo/config.toml", "tools/build", "bazel", "github/x", "vscode/x", "eslint.config.js", "tsconfig.json",
        "MYAGENTS.md", "skill.py", ".cargo/credentials", "gradle/libs.versions.toml", "AGENTS.md.unused-12345678",
    ],
)  # fmt: skip
def test_what_people_work_on_has_no_such_name(path):
    assert caution(path) == ""


def test_only_what_is_below_the_working_folder_counts():
    assert add_caution(PathTarget("/home/.claude/project/x.py", "/home/.claude/project")).caution == ""
    assert add_caution(PathTarget("/elsewhere/AGENTS.md", "/project")).caution


def test_each_name_is_on_the_list_once_and_not_on_that_of_names_which_are_never_written():
    assert len({each.casefold() for each in TRUSTED_NAMES}) == len(TRUSTED_NAMES) >= 250
    for name in TRUSTED_NAMES:
        assert not find_blocking_pattern(name.split("/"), PROTECTED_NAMES)
        assert not MADE_FOLDERS & set(name.split("/"))


def test_the_names_that_are_known_are_not_kept_without_end(monkeypatch):
    monkeypatch.setattr("perdure._io.files.protected._MOST_KNOWN", 2)
    for number in range(5):
        assert TRUSTED.find([f"plain{number}"]) == ("", 0)
    assert len(TRUSTED._known) <= 2
