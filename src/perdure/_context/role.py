"""The `Role` class (named additional instructions, such as `reviewer`), and how all instructions are joined."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.jsonable import replace_surrogates
from perdure._core.values.message import check_labels

LONGEST_NAME: Final = 64
"""Maximum length of a name."""
LONGEST_DESCRIPTION: Final = 1024
"""Maximum length of a description."""


class Role(Struct, frozen=True, metaclass=StrictOptionsMeta):
    """A named set of additional instructions for an agent, optionally with its own model."""

    name: str
    """Name by which it is chosen, and the heading of its instructions."""
    instructions: str
    """Text at the end of the model's instructions."""
    description: str = ""
    """What the role is good for, shown where one is chosen."""
    model: str = ""
    """Model for this role, as `"provider:model"`; empty for the agent's model."""
    labels: Sequence[str] = ()
    """Labels of the instructions, such as `untrusted`: a session with the role has them, too."""

    def __post_init__(self) -> None:
        checks.require_text("Role", "name", self.name, non_empty=True)
        if len(self.name) > LONGEST_NAME or not self.name.isprintable() or self.name != self.name.strip():
            advice = f"give it a name of at most {LONGEST_NAME} characters on one line, without blanks around it"
            checks.raise_config_error("Role", "name", self.name, advice)
        checks.require_text("Role", "instructions", self.instructions, non_empty=True)
        for name in ("description", "model"):
            value = getattr(self, name)
            checks.require_text("Role", name, value)
            if len(value) > LONGEST_DESCRIPTION:
                checks.raise_config_error("Role", name, value, f"use at most {LONGEST_DESCRIPTION} characters")
        check_labels(self.labels)
        for name in ("name", "instructions", "description", "model"):
            if "\0" in (value := getattr(self, name)) or replace_surrogates(value) != value:
                checks.raise_config_error("Role", name, value, "give text that can be written as UTF-8, without NUL")

    def __str__(self) -> str:
        """Return the role as it appears in the instructions."""
        return f"## Role: {self.name}\n\n{self.instructions.strip()}"


def compose_instructions(
    *, base: str = "", project: str = "", skills: str = "", role: Role | None = None, tools: Iterable[str] = ()
) -> str:
    """Join the non-empty parts of the model's instructions, separated by an empty line.

    Args:
        base: Instructions of the agent itself.
        project: Text of the project's files.
        skills: The skill catalogue.
        role: The active role, if any.
        tools: Usage notes of tools; duplicates are included once.
    """
    own = dict.fromkeys(each.strip() for each in tools)
    parts = (base, project, skills, "" if role is None else str(role), *own)
    return "\n\n".join(stripped for part in parts if (stripped := part.strip()))
