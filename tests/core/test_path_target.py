"""Paths as targets: how patterns are read to allow and to deny. Hostile spellings are in tests/security."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import ConfigError
from perdure._core.permission.targets.path import (
    PathPattern,
    build_folder_pattern,
    match_steps,
    normalize_file_name,
    normalize_path_names,
    split_path,
)
from perdure.permissions import PathTarget

HERE = "/srv/project"


def at(path: str) -> PathTarget:
    return PathTarget(path if path.startswith("/") else f"{HERE}/{path}", HERE)


@pytest.mark.parametrize(
    ("pattern", "path", "allowed", "denied"),
    [
        ("drafts/**", "drafts/a", True, True),
        ("drafts/**", "drafts/a/b", True, True),
        ("drafts/**", "drafts", False, True),
        ("drafts/", "drafts/a", True, True),
        ("drafts", "drafts/a", False, True),
        ("drafts/*", "drafts/a", True, True),
        ("drafts/*", "drafts/a/b", False, True),
        ("*.md", "a.md", True, True),
        ("*.md", "deep/a.md", False, True),
        ("**/*.md", "deep/er/a.md", True, True),
        ("**/*.md", "a.md", True, True),
        ("**/*.md", "/etc/a.md", False, True),
        ("a/**/z", "a/z", True, True),
        ("a/**/z", "a/b/c/z", True, True),
        ("a/**/z", "a/b/c", False, False),
        ("[ab].txt", "a.txt", True, True),
        ("[ab].txt", "c.txt", False, False),
        ("/etc/**", "/etc/passwd", True, True),
        ("/etc/**", "etc/passwd", False, False),
        ("/etc/passwd", "/etc/PASSWD", False, True),
        ("/**", "/anything", True, True),
        ("**", "anything", True, True),
        ("**", "/anything", False, True),
        ("notes", "other", False, False),
        ("a/b", "x/a/b", False, False),
    ],
)
def test_a_pattern_is_read_narrowly_to_allow_and_widely_to_deny(pattern, path, allowed, denied):
    assert PathPattern(pattern).allows(at(path)) is allowed
    assert PathPattern(pattern).may_match(at(path)) is denied


def test_a_tilde_in_a_pattern_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/srv/ann")
    assert PathPattern("~/notes/**").allows(at("/srv/ann/notes/x"))
    assert PathPattern("~/notes/**").may_match(at("/srv/ann/notes/x"))


@pytest.mark.parametrize("pattern", ["", " ", "../x", "a/../b", "a\0b"])
def test_a_pattern_that_could_lead_elsewhere_is_refused(pattern):
    with pytest.raises(ConfigError, match=r"give a path such as 'drafts/\*\*', without"):
        PathPattern(pattern)


@pytest.mark.parametrize("path", ["", "  ", "a\0b", "a\ud800", 5, b"bytes"])
def test_what_is_no_path_has_no_target(path):
    with pytest.raises((ValueError, TypeError)):
        PathTarget.of(path)


def test_a_path_is_resolved_against_the_root(tmp_path: Path):
    (tmp_path / "link").symlink_to("/etc")
    root = str(tmp_path.resolve())
    assert PathTarget.of("a/../b", tmp_path) == PathTarget(f"{root}/b", root)
    assert str(PathTarget.of("link/x", tmp_path)) == "/etc/x"
    assert PathTarget.of("/", tmp_path).path == "/"
    with pytest.raises(IsADirectoryError):
        PathTarget.of("/", tmp_path).open("w")


def test_a_link_that_leads_to_itself_has_no_target(tmp_path: Path):
    (tmp_path / "loop").symlink_to("loop")
    for path in ("loop", "loop/x"):
        with pytest.raises(ValueError, match="leads to itself"):
            PathTarget.of(path, tmp_path)


def test_links_in_the_folders_of_a_denying_pattern_are_followed(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    for pattern in ("alias/**", f"{tmp_path}/alias/*"):
        assert PathPattern(pattern).may_match(PathTarget.of("real/x", tmp_path))


def test_a_file_is_opened_in_its_folders(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    for mode, data in (("x", b"1"), ("a", b"2")):
        with PathTarget.of("deep/x", tmp_path).open(mode) as file:  # type: ignore[arg-type]
            file.write(data)
    with PathTarget.of("deep/x", tmp_path).open() as file:
        assert file.read() == b"12"


def test_a_target_comes_from_an_argument_or_its_default(tmp_path: Path):
    target = PathTarget.of_argument("file", tmp_path)
    assert target({"file": "x"}) == PathTarget.of("x", tmp_path)
    assert target.with_default("y")({}) == PathTarget.of("y", tmp_path)
    with pytest.raises(TypeError):
        target({})


def test_a_file_is_opened_where_there_are_no_folder_descriptors(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("perdure._core.permission.targets.path.STEP_BY_STEP", False)
    with PathTarget.of("x", tmp_path).open("w") as file:
        file.write(b"1")
    assert (tmp_path / "x").read_bytes() == b"1"


@pytest.mark.parametrize("step_by_step", [True, False])
def test_a_folder_that_has_become_a_link_is_not_entered(tmp_path: Path, monkeypatch, step_by_step):
    monkeypatch.setattr("perdure._core.permission.targets.path.STEP_BY_STEP", step_by_step)
    (tmp_path / "drafts").mkdir()
    (tmp_path / "private").mkdir()
    target = PathTarget.of("drafts/x", tmp_path)
    (tmp_path / "drafts").rmdir()
    (tmp_path / "drafts").symlink_to("private")
    with pytest.raises(OSError, match=r".*"):
        target.open("w")
    assert list((tmp_path / "private").iterdir()) == []


@pytest.mark.parametrize(
    ("narrow", "wide", "within"),
    [
        ("a", "a", True),
        ("a/b", "a/**", True),
        ("a/b/**", "a/**", True),
        ("a/**", "a/b/**", False),
        ("a/*", "a/**", True),
        ("a/*.md", "*/x", False),
        ("a/b", "*/b", True),
        ("b/x", "a/**", False),
        ("/a/b", "a/**", False),
        ("a/**", "**", True),
        ("a*/b/**", "a*/**", False),
    ],
)
def test_a_pattern_is_within_another_only_if_that_is_certain(narrow, wide, within):
    assert PathPattern(narrow).is_within(PathPattern(wide)) is within


@pytest.mark.parametrize(
    ("path", "pattern"), [("/a/b/c", "/a/b/**"), ("/c", "/**"), ("/a*/x", "/a[*]/**"), ("/", "/**")]
)
def test_the_folder_of_a_path_is_offered(path, pattern):
    assert build_folder_pattern(PathTarget(path, "/")).pattern == pattern


names = st.lists(st.sampled_from(["a", "b", "**", "*"]), max_size=6)


def matches_slowly(steps: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not steps
    if pattern[0] == "**":
        return matches_slowly(steps, pattern[1:]) or (bool(steps) and matches_slowly(steps[1:], pattern))
    return bool(steps) and pattern[0] in {"*", steps[0]} and matches_slowly(steps[1:], pattern[1:])


@given(st.lists(st.sampled_from(["a", "b"]), max_size=6), names)
def test_matching_agrees_with_trying_every_way(steps, pattern):
    assert match_steps(steps, pattern) == matches_slowly(steps, pattern)


def test_many_wildcards_take_no_more_time():
    assert not match_steps(["a"] * 2000, [*["**", "a"] * 30, "b"])


@pytest.mark.parametrize(
    ("pattern", "folder", "possible"),
    [
        ("private/**", "", True),
        ("private/**", "src", False),
        ("private/**", "private", True),
        ("private/**", "private/deep", True),
        ("src/*.key", "src", True),
        ("src/*.key", "src/deep", False),
        ("*.key", "src", True),
        ("**/*.key", "src/deep", True),
        ("a/**/z", "a/b/c", True),
        ("a/**/z", "b", False),
        ("/etc/**", "", False),
        ("/srv/**", "src", True),
        ("PRIVATE/x", "Private", True),
    ],
)
def test_what_could_be_below_a_folder_may_match(pattern, folder, possible):
    assert PathPattern(pattern).may_match_below(f"{HERE}/{folder}/", HERE) is possible


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("README.md", "readme.md"),
        ("Straße", "strasse"),
        ("ﬁle", "file"),
        ("E\u0301t\u00e9", "été"),
        ("se\u200bcr\u00adet", "secret"),
        ("secret. . ", "secret"),
        ("..", ".."),
        (" ", " "),
    ],
)
def test_spellings_of_a_name_that_some_file_system_takes_for_the_same_are_the_same(name, normal):
    assert normalize_file_name(name) == normal


def test_a_path_is_read_with_and_without_the_separators_of_windows():
    steps = ["A", "b\\C:stream", ":d", "\u200b"]
    assert normalize_path_names(steps) == ["a", "b\\c:stream", ":d"]
    assert normalize_path_names(steps, whole=False) == ["a", "b", "c", ":d"]
    assert PathPattern("secret").may_match(at("x\\secret"))
    assert PathPattern("secret").may_match(at("secret:stream"))
    assert not PathPattern("secret").may_match(at("x_secret"))


def test_a_backslash_separates_names_only_where_the_system_says_so():
    expected = ["a", "b", "c"] if os.sep == "\\" else ["a\\b", "c"]
    assert split_path("./a\\b//c/.") == expected
