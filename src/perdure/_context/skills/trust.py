"""Trust in skills: which skills of projects the user has confirmed, bound to the content of their files.

Anyone who can write to a project can add a skill, so it cannot be used until the user has reviewed it. Trust is bound
to the content of all its files: when one changes, it is asked for again.
"""

import os
from typing import Literal, TypeAlias

from perdure._context.trusted_hashes import TrustedItem, TrustFile
from perdure._core.values import checks
from perdure._core.values.error import ConfigError

from .skill import Skill

TrustStatus: TypeAlias = Literal["trusted", "changed", "new"]
"""Trust status of a skill: `changed` if its directory was trusted with other content."""


class Trust:
    """Record of the project skills that the user has trusted, in a file that only its owner can read and write.

    A file that is damaged, or that others can write to, trusts nothing; `problem` has the reason.
    """

    def __init__(self, path: str) -> None:
        checks.require_text("Trust", "path", path, non_empty=True)
        self._file = TrustFile(path)
        self.path = self._file.path
        """The file."""

    @property
    def problem(self) -> str:
        """Reason why the file with the trusted skills cannot be used; empty if it can."""
        try:
            self._file.load_trusted()
        except ConfigError as error:
            return str(error)
        return ""

    def get_status(self, skill: Skill) -> TrustStatus:
        """Return if a skill is trusted, not trusted, or has changed since it was trusted. Trust in the same files of
        another project does not count.
        """
        if skill.source != "project":
            return "trusted"
        try:
            agreed = self._file.load_trusted()
        except ConfigError:
            return "new"
        here = [each for each in agreed if each.path == os.path.realpath(skill.path)]
        if skill.content_hash and any(each.digest == skill.content_hash for each in here):
            return "trusted"
        return "changed" if here else "new"

    def is_trusted(self, skill: Skill) -> bool:
        """Return True if a skill may be used: it is not a project's, or the user has trusted this exact content."""
        return self.get_status(skill) == "trusted"

    def trust(self, skill: Skill) -> None:
        """Record that the user trusts a skill with its current content."""
        if skill.source == "project" and not skill.content_hash:
            raise ConfigError(f"{skill!r} has no content_hash to bind trust to: take it from load_skills(…).untrusted")
        if skill.source == "project":
            self._file.add_trusted(TrustedItem(skill.content_hash, os.path.realpath(skill.path), skill.name))

    def revoke(self, skill: Skill) -> bool:
        """Remove the trust in a skill, whatever its content. Return False if it was not trusted."""
        return self._file.remove_trusted(os.path.realpath(skill.path))
