"""Join the model's instructions from their parts, in a fixed order that suits the provider's prompt cache.

The order is fixed, from what changes least to what changes most, so that two requests share the longest possible
prefix: the agent's instructions, the project's files, the skill catalogue, the role, and the tools' own notes. Text
that changes from turn to turn does not belong here: it is appended to a request as a reminder.
"""

from collections.abc import Iterable

from .agent_role import Role


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
