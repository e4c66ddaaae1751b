"""The worktree of a goal: a branch of its own, made once and used again."""

import subprocess

import pytest

from perdure import ConfigError
from perdure.background import prepare_worktree
from tests.reviewing.conftest import git


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "boat.py").write_text("speed = 0\n")
    (root / ".gitattributes").write_text("boat.py filter=evil\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "A boat")
    return root


def test_a_worktree_has_a_branch_of_its_own_and_is_used_again(repository):
    made = prepare_worktree(repository, "goal-1234")
    assert made.branch == "goal/1234"
    assert made.path == str(repository / ".perdure/worktrees/goal-1234")
    (repository / ".perdure/worktrees/goal-1234/boat.py").write_text("speed = 3\n")
    assert prepare_worktree(repository, "goal-1234") == made
    assert (repository / ".perdure/worktrees/goal-1234/boat.py").read_text() == "speed = 3\n"
    assert (repository / "boat.py").read_text() == "speed = 0\n"
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "branch", "--format=%(refname:short)").split() == ["goal/1234", "main"]


def test_a_branch_whose_worktree_was_removed_is_checked_out_again(repository):
    made = prepare_worktree(repository, "goal-1234")
    subprocess.run(["rm", "-rf", made.path], check=True)
    assert prepare_worktree(repository, "goal-1234") == made


def test_no_hook_and_no_filter_of_the_repository_runs(repository, tmp_path):
    hook = repository / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    git(repository, "config", "filter.evil.smudge", f"touch {tmp_path}/ran; cat")
    prepare_worktree(repository, "goal-1234")
    assert not (tmp_path / "ran").exists()


def test_without_a_repository_or_behind_a_link_there_is_no_worktree(repository, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    with pytest.raises(ConfigError, match="gets no worktree"):
        prepare_worktree(alone, "goal-1234")
    (repository / ".perdure").symlink_to(alone)
    with pytest.raises(ConfigError, match="link"):
        prepare_worktree(repository, "goal-1234")
    assert [*alone.iterdir()] == []  # nothing was made behind the link
    (alone / "worktrees/goal-1234").mkdir(parents=True)
    with pytest.raises(ConfigError, match="link"):
        prepare_worktree(repository, "goal-1234")


def test_a_plain_folder_in_the_place_of_a_worktree_is_not_taken_for_one(repository):
    """Git finds the repository around it there: its branch is no proof."""
    (repository / ".perdure/worktrees/goal-1234").mkdir(parents=True)
    git(repository, "checkout", "-q", "-b", "goal/1234")
    with pytest.raises(ConfigError, match="no worktree"):
        prepare_worktree(repository, "goal-1234")


def test_a_path_with_spaces_changes_that_are_not_committed_and_a_worktree_in_a_worktree(repository):
    moved = repository.rename(repository.with_name("my repository"))
    (moved / "boat.py").write_text("speed = 1\n")
    made = prepare_worktree(moved, "goal-1234")
    assert (moved / ".perdure/worktrees/goal-1234/boat.py").read_text() == "speed = 0\n"
    inner = prepare_worktree(made.path, "goal-5678")
    assert inner.path == f"{made.path}/.perdure/worktrees/goal-5678"
    assert prepare_worktree(made.path, "goal-5678") == inner
    assert (moved / "boat.py").read_text() == "speed = 1\n"


def test_a_repository_without_a_commit_gets_no_worktree(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    with pytest.raises(ConfigError, match="gets no worktree"):
        prepare_worktree(tmp_path, "goal-1234")


def test_a_worktree_with_another_branch_is_not_used(repository):
    made = prepare_worktree(repository, "goal-1234")
    git(made.path, "checkout", "-q", "-b", "other")
    with pytest.raises(ConfigError, match="'other'"):
        prepare_worktree(repository, "goal-1234")
