"""Rules of .gitignore, compared with git itself."""

# ruff: noqa: E501 - a list is a line

import os
import subprocess

import pytest

from perdure._io.files.ignore_rules import IgnoreRules, is_ignored, parse_rules
from perdure._io.files.jail import Jail
from perdure._io.files.tree_walk import walk_files
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
    (tmp_path / ".gitignore").write_text("root/skip.txt\nroot/sub/deep/skip.txt\n*.tmp\n")
    root = tmp_path / "root"
    (root / "sub" / "deep").mkdir(parents=True)
    for name in ("skip.txt", "keep.txt", "a.tmp", "sub/b.tmp", "sub/keep.txt", "sub/deep/skip.txt"):
        (root / name).write_text("x")
    assert sorted("/".join(each) for each in walk_files(Jail(root), ())) == ["keep.txt", "sub/keep.txt"]
    assert sorted("/".join(each) for each in walk_files(Jail(root), ("sub",))) == ["sub/keep.txt"]


@pytest.mark.parametrize(
    ("line", "ignored", "kept"),
    [
        ("f?o", ["foo", "a/f.o"], ["fo", "f/o", "fooo"]),
        ("a*z", ["az", "abz", "b/abcz"], ["a/z", "azb"]),
        ("a/**/z", ["a/z", "a/b/z", "a/b/c/z"], ["z", "b/a/z", "az"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b/a/c"]),
        ("**/z", ["z", "a/z", "a/b/z"], ["az"]),
        ("**", ["a", "a/b"], []),
        ("a**z", ["az", "abz"], ["a/z"]),
        ("[ab].x", ["a.x", "b.x"], ["c.x", "ab.x"]),
        ("[!ab].x", ["c.x"], ["a.x", "b.x"]),
        ("[^ab].x", ["c.x"], ["a.x"]),
        ("a[!b]c", ["axc"], ["a/c", "abc"]),
        ("[]].x", ["].x"], ["[.x"]),
        ("[a", ["[a"], ["a"]),
        ("/top", ["top"], ["a/top"]),
        ("a/b", ["a/b"], ["c/a/b", "b"]),
        ("\\!x", ["!x"], ["x"]),
        ("\\#x", ["#x"], ["x"]),
        ("end\\", ["end\\"], ["end"]),
        ("trail  ", ["trail"], ["trail  "]),
        ("trail\\ ", ["trail "], ["trail"]),
        ("a.b", ["a.b"], ["axb"]),
        ("[z-a]", [], ["z", "a"]),
        ("/", [], ["a"]),
        ("", [], ["a"]),
        ("a\n**", ["a", "b", "b/c", "\n"], []),
        ("# a", [], ["# a", "a"]),
    ],
)
def test_a_line_matches_these_paths_and_not_those(line, ignored, kept):
    rules = [IgnoreRules(0, (), parse_rules(line))]
    assert [path for path in (*ignored, *kept) if is_ignored(tuple(path.split("/")), rules, is_folder=False)] == ignored


def test_a_line_with_a_slash_at_its_end_is_for_folders():
    rules = [IgnoreRules(0, (), parse_rules("\ufeffbuild/\n!build/\nbuild/\n"))]
    assert [is_ignored(("build",), rules, is_folder=each) for each in (True, False)] == [True, False]


def test_rules_of_the_folders_above_the_start_apply_up_to_the_repository(tmp_path):
    """Those of a repository's own folders, and not those above it."""
    (tmp_path / ".gitignore").write_text("*.py\n")
    repository = tmp_path / "repository"
    (repository / "a" / "b").mkdir(parents=True)
    (repository / ".git").mkdir()
    (repository / ".gitignore").write_text("*.log\n*.tmp\n")
    (repository / "a" / ".gitignore").write_text("!kept.log\n")
    for name in ("x.py", "x.log", "kept.log", "x.tmp"):
        (repository / "a" / "b" / name).touch()
    for root, start in ((tmp_path, ("repository", "a", "b")), (repository, ("a", "b")), (repository / "a", ("b",))):
        walked = sorted(each[-1] for each in walk_files(Jail(root), start))
        assert walked == ["kept.log", "x.py"], root


def test_a_repository_inside_has_its_own_rules(tmp_path):
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "inner" / ".git").mkdir(parents=True)
    for name in ("a.log", "inner/a.log", "inner/a.py"):
        (tmp_path / name).touch()
    assert sorted("/".join(each) for each in walk_files(Jail(tmp_path), ())) == [
        ".gitignore",
        "inner/a.log",
        "inner/a.py",
    ]


def test_links_pipes_secrets_and_folders_that_are_gone_are_left_out_of_a_walk(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").touch()
    (tmp_path / ".env").touch()
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    jail = Jail(tmp_path)
    assert list(walk_files(jail, ())) == [("a", "x")]
    assert list(walk_files(jail, ("missing",))) == []


@pytest.mark.parametrize("line", ["*a" * 40 + "b", "**/a/" * 20 + "b", "x/**/" + "*a/**/" * 20 + "b", "a*" * 40 + "/b"])
def test_no_pattern_takes_long(line):
    (rule,) = parse_rules(line)
    for path in ("a" * 250, "a/" * 100 + "c", "x/" + "aa/" * 100 + "c"):
        assert not rule.expression.fullmatch(path)
