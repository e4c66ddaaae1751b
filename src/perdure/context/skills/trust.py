"""Which skills of projects a person has agreed to. Above: `discovery.py`, the command line. Below: a file.

Whoever can write to a project can write a skill, so it does nothing until somebody has looked at it. Trust is bound to
the content of all its files: when one of them changes, it is asked for again.
"""

import os
from typing import Literal, TypeAlias

from perdure.context.trust_file import Agreed, TrustFile
from perdure.core import check
from perdure.core.error import ConfigError

from .skill import Skill

Standing: TypeAlias = Literal["trusted", "changed", "new"]
"""How a skill stands: `changed` is one whose directory was trusted with other content."""


class Trust:
    """Trust in skills, kept in a file that its owner alone can read and write.

    A file that is damaged, or that others can write to, trusts nothing; `problem` says so.
    """

    def __init__(self, path: str) -> None:
        check.text("Trust", "path", path, filled=True)
        self._file = TrustFile(path)
        self.path = self._file.path
        """The file."""

    @property
    def problem(self) -> str:
        """Why the file cannot be used; empty when it can."""
        try:
            self._file.agreed()
        except ConfigError as error:
            return str(error)
        return ""

    def standing(self, skill: Skill) -> Standing:
        """Whether a skill may be used and, if not, whether its directory was trusted before."""
        if skill.source != "project":
            return "trusted"
        try:
            agreed = self._file.agreed()
        except ConfigError:
            return "new"
        if skill.content_hash and any(each.digest == skill.content_hash for each in agreed):
            return "trusted"
        return "changed" if any(each.path == os.path.realpath(skill.path) for each in agreed) else "new"

    def is_trusted(self, skill: Skill) -> bool:
        """Whether a skill may be used: it is no project's, or somebody has agreed to this very content."""
        return self.standing(skill) == "trusted"

    def trust(self, skill: Skill) -> None:
        """Agree to a skill as it is now."""
        if skill.source == "project" and not skill.content_hash:
            raise ConfigError(f"{skill!r} has no content_hash to bind trust to: take it from load_skills(…).untrusted")
        if skill.source == "project":
            self._file.add(Agreed(skill.content_hash, os.path.realpath(skill.path), skill.name))

    def revoke(self, skill: Skill) -> bool:
        """Take it back, for this content and for any other that the directory had; false when there was no trust."""
        return self._file.remove(os.path.realpath(skill.path), skill.content_hash)
