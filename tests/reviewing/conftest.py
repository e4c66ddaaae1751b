"""A repository with a branch to review, and models that review it by a script."""

import json
import os
import shutil
import subprocess

import pytest

from perdure.testing import ScriptedModel

FINDING = {
    "severity": "major",
    "file": "boat.py",
    "line": 2,
    "title": "speed divides by zero",
    "problem": "speed(1, 0) raises ZeroDivisionError.",
    "fix": "Return 0.0 when hours is 0.",
    "done_when": "speed(1, 0) == 0.0",
}


def git(folder, *words):
    env = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "Anna",
        "GIT_AUTHOR_EMAIL": "anna@example.org", "GIT_COMMITTER_NAME": "Anna", "GIT_COMMITTER_EMAIL": "anna@example.org",
    }  # fmt: skip
    return subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A repository to be copied: to make it takes git ten times as long."""
    root = tmp_path_factory.mktemp("template") / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "boat.py").write_text("def speed(miles, hours):\n    return 0.0\n")
    (root / "crew.py").write_text("crew = 3\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "A boat")
    git(root, "checkout", "-q", "-b", "faster")
    (root / "boat.py").write_text("def speed(miles, hours):\n    return miles / hours\n")
    (root / "uv.lock").write_text("version = 1\n")
    (root / ".env").write_text("KEY=canary-secret\n")
    git(root, "add", "-f", ".")
    git(root, "commit", "-q", "-m", "Speed is computed")
    return root


@pytest.fixture
def repository(template, tmp_path):
    """A repository whose branch changes two files and adds a secret."""
    return shutil.copytree(template, tmp_path / "repository", symlinks=True)


def answer(*findings, summary="The speed is computed now."):
    """The text with which a model ends its review."""
    return json.dumps({"summary": summary, "findings": [{**FINDING, **each} for each in findings]})


def reviewer(*script, name="scripted"):
    """A model that reviews by a script."""
    return ScriptedModel(*script, name=name)
