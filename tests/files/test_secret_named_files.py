"""A folder without secrets is told from one that may have some."""

import os

import pytest

from perdure._io.files import sensitive
from perdure._io.files.sensitive import has_no_secrets


def test_names_at_any_depth_are_found(tmp_path):
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/x.py").write_text("x")
    assert has_no_secrets(str(tmp_path))
    (tmp_path / "a/b/c/SERVER.PEM").write_text("x")
    assert not has_no_secrets(str(tmp_path))
    assert has_no_secrets(str(tmp_path), hidden_paths=[str(tmp_path / "a/b/c/SERVER.PEM")])
    assert has_no_secrets(str(tmp_path), skipped_names=["c"])
    assert has_no_secrets(str(tmp_path / "a/x.py"))


def test_names_above_count(tmp_path):
    (tmp_path / "config.json").write_text("x")
    assert has_no_secrets(str(tmp_path))
    assert not has_no_secrets(str(tmp_path), [".docker"])


def test_hidden_files_and_links_are_left_out_if_the_command_leaves_them_out(tmp_path):
    (tmp_path / ".env").write_text("x")
    assert has_no_secrets(str(tmp_path), shown_patterns=[])
    (tmp_path / ".env").unlink()
    (tmp_path / "link").symlink_to("/etc")
    assert has_no_secrets(str(tmp_path))
    assert not has_no_secrets(str(tmp_path), follows_links=True)


def test_of_what_cannot_be_looked_at_nothing_is_known(tmp_path, monkeypatch):
    assert not has_no_secrets(str(tmp_path / "missing"))
    for name in "abc":
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(sensitive, "MOST_ENTRIES", 2)
    assert not has_no_secrets(str(tmp_path))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_may_have_secrets(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    assert not has_no_secrets(str(tmp_path))


@pytest.mark.parametrize("pattern", [".e*", ".env", ".ENV", "*", ".[e]nv", "{.env,x}", "**", "\\.env", ""])
def test_a_pattern_may_bring_hidden_files(tmp_path, pattern):
    (tmp_path / ".env").write_text("x")
    assert has_no_secrets(str(tmp_path), shown_patterns=["*.py", ".envrc"])
    assert not has_no_secrets(str(tmp_path), shown_patterns=[pattern])


@pytest.mark.parametrize("name", [".ignore", ".rgignore", ".gitignore", ".git/info/exclude"])
def test_a_line_of_an_ignore_file_may_bring_hidden_files(tmp_path, name):
    inner = tmp_path / "a" / "b"
    (inner / ".x").mkdir(parents=True)
    (inner / ".x" / "server.pem").write_text("x")
    rules = tmp_path / name
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text(".x\n!*.py\n!.xy\n# !.x\n")
    assert has_no_secrets(str(tmp_path), shown_patterns=[])
    rules.write_text("*.log\n!a/**/.x/\n")
    assert not has_no_secrets(str(tmp_path), shown_patterns=[])
    assert not has_no_secrets(str(inner), ["a", "b"], shown_patterns=[])
    assert has_no_secrets(str(inner), [], shown_patterns=[])


@pytest.mark.parametrize("name", [".ignore", ".gitignore", ".git", ".git/info", ".git/info/exclude"])
def test_an_ignore_file_that_leads_elsewhere_may_bring_anything(tmp_path, name):
    root = tmp_path / "root"
    (root / name).parent.mkdir(parents=True)
    (root / name).symlink_to("/etc/passwd")
    (root / "sub").mkdir()
    assert not has_no_secrets(str(root), shown_patterns=[])
    assert not has_no_secrets(str(root / "sub"), ["sub"], shown_patterns=[])


def test_an_ignore_file_that_is_too_large_may_bring_anything(tmp_path):
    (tmp_path / ".ignore").write_text("x\n" * 200_000)
    assert not has_no_secrets(str(tmp_path), shown_patterns=[])
