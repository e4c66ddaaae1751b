"""What the tests of skills share: a project and a home with skills in them."""

import os

import pytest

from perdure.context import load_skills


class Ground:
    """A repository and the home of a user, both empty at first."""

    def __init__(self, path):
        self.workdir = path / "project"
        self.home = path / "home"
        self.outside = path / "outside"
        for each in (self.workdir / ".git", self.home, self.outside):
            each.mkdir(parents=True)

    def skill(self, name, text=None, *, below=None, **files):
        """Write one; the files beside it are given as `a__b_md="…"` for `a/b.md`."""
        directory = (self.workdir / ".agents/skills" if below is None else below) / name
        directory.mkdir(parents=True, exist_ok=True)
        content = f"---\nname: {name}\ndescription: Does {name}.\n---\n# {name}\n" if text is None else text
        if content is not ...:
            (directory / "SKILL.md").write_bytes(content if isinstance(content, bytes) else content.encode())
        for encoded, each in files.items():
            path = directory / encoded.replace("__", "/").replace("_md", ".md").replace("_py", ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(each, encoding="utf-8")
        return directory

    def user_skill(self, name, text=None, **files):
        return self.skill(name, text, below=self.home / ".agents/skills", **files)

    def load(self, trust=None, workdir=None):
        return load_skills(os.fspath(workdir or self.workdir), home=os.fspath(self.home), trust=trust)


@pytest.fixture
def ground(tmp_path):
    return Ground(tmp_path)
