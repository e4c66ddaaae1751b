"""A role: instructions with a name, which an agent can take on. Above: `roles.py`, the assembly. Below: `core`."""

from typing import Final

from msgspec import Struct

from perdure.core import check
from perdure.core.plain import clean

LONGEST_NAME: Final = 64
"""Characters of a name."""
LONGEST_DESCRIPTION: Final = 1024
"""Characters of a description."""


class Role(Struct, frozen=True):
    """Who the agent is for a while: what it is told besides, and who answers."""

    name: str
    """What it is chosen by, and the heading of its instructions."""
    instructions: str
    """What the model is told at the end of its instructions."""
    description: str = ""
    """What it is good for, told to whoever has to choose."""
    model: str = ""
    """Who answers in this role, as `"provider:model"`; empty for the agent's own model."""

    def __post_init__(self) -> None:
        check.text("Role", "name", self.name, filled=True)
        if len(self.name) > LONGEST_NAME or not self.name.isprintable() or self.name != self.name.strip():
            advice = f"give it a name of at most {LONGEST_NAME} characters on one line, without blanks around it"
            check.refuse("Role", "name", self.name, advice)
        check.text("Role", "instructions", self.instructions, filled=True)
        for name in ("description", "model"):
            value = getattr(self, name)
            check.text("Role", name, value)
            if len(value) > LONGEST_DESCRIPTION:
                check.refuse("Role", name, value, f"use at most {LONGEST_DESCRIPTION} characters")
        for name in self.__struct_fields__:
            if "\0" in (value := getattr(self, name)) or clean(value) != value:
                check.refuse("Role", name, value, "give text that can be written as UTF-8, without NUL")

    def __str__(self) -> str:
        """As it stands in the instructions."""
        return f"## Role: {self.name}\n\n{self.instructions.strip()}"
