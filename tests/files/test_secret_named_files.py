"""A folder without secrets is told from one that may have some."""

import os

import pytest

from perdure.files import secret_named_files
from perdure.files.secret_named_files import has_no_secrets


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
    assert has_no_secrets(str(tmp_path), skips_hidden=True)
    (tmp_path / ".env").unlink()
    (tmp_path / "link").symlink_to("/etc")
    assert has_no_secrets(str(tmp_path))
    assert not has_no_secrets(str(tmp_path), follows_links=True)


def test_of_what_cannot_be_looked_at_nothing_is_known(tmp_path, monkeypatch):
    assert not has_no_secrets(str(tmp_path / "missing"))
    for name in "abc":
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(secret_named_files, "MOST_ENTRIES", 2)
    assert not has_no_secrets(str(tmp_path))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_may_have_secrets(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    assert not has_no_secrets(str(tmp_path))
