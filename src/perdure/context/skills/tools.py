"""The tools by which a model loads skills. Above: the assembly. Below: `collection.py`.

What a skill says comes from outside, so it is framed with its name, and the frame cannot be closed from inside.
"""

from typing import Annotated, Any, Final

from perdure.core.error import ConfigError, ToolError
from perdure.core.event import SkillLoaded
from perdure.core.message import Message
from perdure.core.tool import Tool, ToolContext, tool

from .collection import Skills
from .skill import Resource, Skill, prompt_of

_THIS_TURN: Final = "perdure.skills.this_turn"
"""Where a run remembers what is being told, until it is part of the conversation."""


def skill_tools(skills: Skills) -> list[Tool[..., Any]]:
    """`skill`, which loads one, and `skill_resource`, which reads what belongs to one."""

    @tool(effect="read", credentials=False)
    async def skill(
        name: Annotated[str, "The name of the skill, as in the list of available skills."],
        context: ToolContext[Any],
        arguments: Annotated[str, "What the skill is to be applied to, if it needs to be told."] = "",
    ) -> str:
        """Load a skill: how to do one kind of work, and what more there is to read about it."""
        found = _found(skills, name)
        if _is_in_sight(context, found, arguments):
            return f"Skill {found.name!r} is loaded already: its text is further up in this conversation."
        await context.record(SkillLoaded(found.name, "model", arguments))
        taken = _offer(context, found)
        return framed(found, prompt_of(found, arguments), manifest_of(found), _not_offered(taken))

    @tool(effect="read", credentials=False)
    async def skill_resource(
        skill: Annotated[str, "The name of the skill."],
        name: Annotated[str, "The name of a section or resource, as listed when the skill was loaded."],
    ) -> str:
        """Read a section or resource of a skill that is loaded."""
        found = _found(skills, skill)
        try:
            return framed(found, await found.read(name), part=name)
        except ConfigError as error:
            raise ToolError(str(error)) from error

    return [skill, skill_resource]


def framed(skill: Skill, text: str, *more: str, part: str = "") -> str:
    """The text of a skill for a model: it is plain where it begins, where it ends, and whose it is."""
    which = f' part="{_quoted(part)}"' if part else ""
    inside = "\n\n".join([_closed(each) for each in (text, *more) if each])
    return f'<skill name="{skill.name}"{which}>\n{inside}\n</skill>'


def manifest_of(skill: Skill) -> str:
    """What more there is to read, and where the files are; empty when there is nothing."""
    lists = [("Sections", skill.sections), ("Resources", skill.resources)]
    parts = [f"## {title}\n" + "\n".join(map(_line, texts.items())) for title, texts in lists if texts]
    if parts:
        parts.append(f"Read one of them with `skill_resource`, given skill={skill.name!r} and its name.")
    if skill.path:
        parts.append(f"The files of this skill are in {skill.path}")
    return "\n\n".join(parts)


def _line(entry: tuple[str, Resource | str]) -> str:
    name, text = entry
    return f"- {name}: {text.description}" if isinstance(text, Resource) and text.description else f"- {name}"


def _closed(text: str) -> str:
    """The text without anything that would end its frame."""
    return text.replace("</skill", "<\\/skill")


def _quoted(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def _found(skills: Skills, name: str) -> Skill:
    try:
        return skills.get(name)
    except ConfigError as error:
        raise ToolError(str(error)) from error


def _is_in_sight(context: ToolContext[Any], skill: Skill, arguments: str) -> bool:
    """Whether the model sees the text of a skill already. What was summed up since is out of sight again."""
    state = context.run.state
    telling: dict[tuple[str, str], int] = context.state.setdefault(_THIS_TURN, {})
    is_being_told = telling.get((skill.name, arguments)) == state.turns
    telling[skill.name, arguments] = state.turns
    loaded = state.skills.get(skill.name)
    if is_being_told or loaded is None or loaded.arguments != arguments:
        return is_being_told
    said = prompt_of(skill, arguments)
    return any(_holds(message, said) for message in state.view)


def _holds(message: Message, said: str) -> bool:
    """Whether a message tells it: as the result of `skill`, or in somebody's own words."""
    return said in message.text or any(_closed(said) in each.text for each in message.tool_results)


def _offer(context: ToolContext[Any], skill: Skill) -> list[str]:
    """Offer what a skill brings along. A tool that is offered already keeps its name: a skill never takes its place.

    Returns the names that others have.
    """
    run = context.run
    there = {each.name: run.toolbox.get(each.name) for each in skill.tools}
    context.add_tools(*[each for each in skill.tools if there[each.name] is None])
    wrapped = [each if run.wrap_tool is None else run.wrap_tool(each) for each in skill.tools]
    return [each.name for each in wrapped if (other := there.get(each.name)) is not None and other.spec != each.spec]


def _not_offered(names: list[str]) -> str:
    """What the model is told of tools that it does not get."""
    if not names:
        return ""
    which = ", ".join([f"`{name}`" for name in names])
    return f"This skill has tools of its own that are not offered, since others have their names already: {which}"
