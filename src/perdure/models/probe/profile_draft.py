"""Draft of a model's profile (capabilities and limits), filled in by the experiments of a model probe."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.models.profile import Profile


class ProbeFinding(Struct, frozen=True):
    """Result of one experiment of a model probe (a test of one capability), as text for people."""

    about: str
    found: str
    """Result, for people to read."""


class ProfileDraft:
    """Profile (capabilities and limits) that a model probe fills in, and the findings of its experiments."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.findings: list[ProbeFinding] = []
        self.fields: dict[str, Any] = {}
        """Fields of the profile that were found out."""
        self.thinking_fields: set[str] = set()
        """Fields of responses in which thinking was seen."""
        self.rejects_schemas = False
        """True if the endpoint rejects some JSON Schema keywords."""

    def record_finding(self, about: str, found: str, **fields: Any) -> None:
        """Record a finding, and set the fields of the profile that follow from it."""
        self.findings.append(ProbeFinding(about, found))
        self.set_fields(**fields)

    def set_fields(self, **fields: Any) -> None:
        """Set fields of the profile, and remember that the probe determined them."""
        self.fields |= fields
        self.profile = replace(self.profile, **fields)
