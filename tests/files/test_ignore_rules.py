"""Rules of .gitignore, compared with git itself."""

# ruff: noqa: E501 - a list is a line

import subprocess

import pytest

from perdure.files.ignore_rules import IgnoreRules, is_ignored, parse_rules
from perdure.files.jail import Jail
from perdure.files.tree_walk import walk_files
from tests.seeds import chance

RULES = [
    "*.log", "!keep.log", "build/", "/top", "sub/x", "**/deep", "deep/**", "a/**/b", "*", "!*.py", "!*/", "[ab].txt",
    "[!a].md", "f?o", "# comment", "", "\\#x", "\\!x", "trail  ", "trail\\ ", "/", "sub/", "x*y*z", "***", "[", "a[",
    "sub/*.txt", "!sub/keep.txt", "**", "foo/", "*.p[xy]", "/sub/deep/",
]  # fmt: skip
NAMES = ["a.log", "keep.log", "build", "top", "sub", "x", "deep", "a", "b", "a.txt", "c.md", "foo", "#x", "!x", "trail", "trail ", "xyz", "keep.txt", "a.py"]  # fmt: skip


def make_tree(root, random):
    for _ in range(40):
        steps = [random.choice(NAMES) for _ in range(random.randint(1, 3))]
        place = root.joinpath(*steps)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                place.write_text("x")
        except (FileExistsError, NotADirectoryError):
            continue


@pytest.mark.parametrize("number", range(4))
def test_the_same_files_are_left_out_as_by_git(tmp_path, number):
    random = chance("ignore", number)
    root = tmp_path / "root"
    root.mkdir()
    make_tree(root, random)
    folders = [root, *[each for each in root.rglob("*") if each.is_dir()]]
    for folder in random.sample(folders, min(3, len(folders))):
        if (folder / ".gitignore").exists():
            continue
        (folder / ".gitignore").write_text("\n".join(random.sample(RULES, 5)) + "\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    listed = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    ours = {"/".join(each) for each in walk_files(Jail(root), ())}
    rules = {str(each.relative_to(root)): each.read_text() for each in root.rglob(".gitignore")}
    assert ours == {each for each in listed.split("\0") if each}, rules


def test_a_rule_further_down_beats_one_further_up():
    rules = [IgnoreRules(0, (), parse_rules("*.log\n")), IgnoreRules(1, (), parse_rules("!a.log\r\n"))]
    assert is_ignored(("a.log",), rules[:1], is_folder=False)
    assert not is_ignored(("sub", "a.log"), rules, is_folder=False)
    assert is_ignored(("sub", "b.log"), rules, is_folder=False)


def test_rules_above_the_root_apply_up_to_the_repository(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("root/skip.txt\n*.tmp\n")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    for name in ("skip.txt", "keep.txt", "a.tmp", "sub/b.tmp", "sub/keep.txt"):
        (root / name).write_text("x")
    assert sorted("/".join(each) for each in walk_files(Jail(root), ())) == ["keep.txt", "sub/keep.txt"]
    assert sorted("/".join(each) for each in walk_files(Jail(root), ("sub",))) == ["sub/keep.txt"]
