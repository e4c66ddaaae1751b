"""All that an agent is told before a conversation, put together. Above: the assembly. Below: `role.py`.

The order is fixed, from what changes least to what changes most, so that two requests share as long a beginning as they
can: the agent's own words, the project's files, the catalogue of skills, the role, and what tools say of themselves.
Whatever changes from turn to turn does not belong here: it goes to the end of a request, as a reminder.
"""

from collections.abc import Iterable

from .role import Role


def composed(
    *, base: str = "", project: str = "", skills: str = "", role: Role | None = None, tools: Iterable[str] = ()
) -> str:
    """The instructions of a request: the parts that say something, with an empty line between them.

    Args:
        base: What the agent itself is told.
        project: What the files of the project say.
        skills: The catalogue of skills.
        role: The role that it has, if any.
        tools: What tools have to say about how they are used, a piece of text each; what several say is said once.
    """
    own = dict.fromkeys(each.strip() for each in tools)
    parts = (base, project, skills, "" if role is None else str(role), *own)
    return "\n\n".join(stripped for part in parts if (stripped := part.strip()))
