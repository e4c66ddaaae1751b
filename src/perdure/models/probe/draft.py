"""What a probe knows so far. Above: the experiments. Below: `profile.py`."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.models.profile import Profile


class Finding(Struct, frozen=True):
    """One thing that was found out."""

    about: str
    found: str
    """In words."""


class Draft:
    """A profile in the making, and how each of its fields was learned."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.findings: list[Finding] = []
        self.fields: dict[str, Any] = {}
        """The fields of the profile that were learned."""
        self.thinking_fields: set[str] = set()
        """Where thinking was seen."""

    def note(self, about: str, found: str, **fields: Any) -> None:
        """Write down what was found out, and what it means for the profile."""
        self.findings.append(Finding(about, found))
        self.learn(**fields)

    def learn(self, **fields: Any) -> None:
        """Write down fields of the profile."""
        self.fields |= fields
        self.profile = replace(self.profile, **fields)
