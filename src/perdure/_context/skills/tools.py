"""Tools with which a model loads skills.

The text of a skill is untrusted, so it is framed with its name, and the frame cannot be closed from inside.
"""

from typing import Annotated, Any, Final

from perdure._core.run.calling_run import get_run_of_call
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, tool
from perdure._core.values.error import ConfigError, ToolError
from perdure._core.values.event import SkillLoaded
from perdure._core.values.message import Message

from .skill import Resource, Skill, Skills, describe_missing_skill, format_skill_body, resolve_skill_prompt

_THIS_TURN: Final = "perdure.skills.this_turn"
"""Key of the run's state for the skills loaded in this turn, which are not part of the conversation yet."""


def skill_tools(skills: Skills) -> list[Tool[..., Any]]:
    """Return the tools `skill`, which loads a skill, and `skill_resource`, which reads a text of one.

    Without a skill that the model may see, there are none.
    """

    @tool(effect="read", credentials=False)
    async def skill(
        name: Annotated[str, "The name of the skill, as in the list of available skills."],
        context: ToolContext[Any],
        arguments: Annotated[str, "What the skill is to be applied to, if it needs to be told."] = "",
    ) -> str:
        """Load a skill: how to do one kind of work, and what more there is to read about it."""
        found = _get_visible_skill(skills, name)
        if _is_text_visible(context, found, arguments):
            return f"Skill {found.name!r} is loaded already: its text is further up in this conversation."
        text = await resolve_skill_prompt(found, arguments)
        await context.record(SkillLoaded(found.name, "model", arguments))
        taken = _offer_tools(context, found)
        return frame_skill_text(found, text, build_manifest(found), _describe_withheld_tools(taken))

    known = [
        each for each in (*skills, *skills.untrusted) if not each.hidden
    ]  # of an untrusted one, the model is told so
    return [skill, skill_resource_tool(skills)] if known else []


def skill_resource_tool(skills: Skills) -> Tool[..., Any]:
    """Return the tool `skill_resource`, which reads a section or resource of a skill.

    Those of a hidden skill can be read only after a user has loaded the skill.
    """

    @tool(effect="read", credentials=False)
    async def skill_resource(
        skill: Annotated[str, "The name of the skill."],
        name: Annotated[str, "The name of a section or resource, as listed when the skill was loaded."],
        context: ToolContext[Any],
    ) -> str:
        """Read a section or resource of a skill that is loaded."""
        is_loaded = skill in context.run.state.skills
        found = (_get_skill if is_loaded else _get_visible_skill)(skills, skill)
        try:
            return frame_skill_text(found, await found.read(name), part=name)
        except ConfigError as error:
            raise ToolError(str(error)) from error

    return skill_resource


def frame_skill_text(skill: Skill, text: str, *more: str, part: str = "") -> str:
    """Put the text of a skill between tags with the skill's name, which the untrusted text cannot close."""
    which = f' part="{_escape_attribute(part)}"' if part else ""
    inside = "\n\n".join([_escape_frame(each) for each in (text, *more) if each])
    return f'<skill name="{skill.name}"{which}>\n{inside}\n</skill>'


def build_manifest(skill: Skill) -> str:
    """Return the list of a skill's sections, resources and files, for the model; empty if there are none."""
    lists = [("Sections", skill.sections), ("Resources", skill.resources)]
    parts = [f"## {title}\n" + "\n".join(map(_format_entry, texts.items())) for title, texts in lists if texts]
    if parts:
        parts.append(f"Read one of them with `skill_resource`, given skill={skill.name!r} and its name.")
    if skill.path:
        parts.append(f"The files of this skill are in {skill.path}")
    return "\n\n".join(parts)


def _format_entry(entry: tuple[str, Resource | str]) -> str:
    name, text = entry
    return f"- {name}: {text.description}" if isinstance(text, Resource) and text.description else f"- {name}"


def _escape_frame(text: str) -> str:
    """Escape text that would end the frame."""
    return text.replace("</skill", "<\\/skill")


def _escape_attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def _get_visible_skill(skills: Skills, name: str) -> Skill:
    """Return a skill that the model may load. A hidden skill raises the same error as one that does not exist."""
    found = _get_skill(skills, name)
    if found.hidden:
        raise ToolError(describe_missing_skill(skills, name))
    return found


def _get_skill(skills: Skills, name: str) -> Skill:
    try:
        return skills.get(name)
    except ConfigError as error:
        raise ToolError(str(error)) from error


def _is_text_visible(context: ToolContext[Any], skill: Skill, arguments: str) -> bool:
    """Return True if the model already sees the text of a skill. Text that was compacted since is no longer visible."""
    state = context.run.state
    telling: dict[tuple[str, str], int] = context.state.setdefault(_THIS_TURN, {})
    is_being_told = telling.get((skill.name, arguments)) == state.turns
    telling[skill.name, arguments] = state.turns
    loaded = state.skills.get(skill.name)
    if is_being_told or loaded is None or loaded.arguments != arguments or skill.handler is not None:
        return is_being_told  # the text of a handler may be another one each time
    said = format_skill_body(skill, arguments)
    return any(_has_text(message, said) for message in state.view)


def _has_text(message: Message, said: str) -> bool:
    """Return True if a message contains the text of a skill: as the result of the tool `skill`, or in a user
    message.
    """
    return said in message.text or any(_escape_frame(said) in each.text for each in message.tool_results)


def _offer_tools(context: ToolContext[Any], skill: Skill) -> list[str]:
    """Offer the tools of a skill to the model. A tool with a name that is in use is not replaced.

    Return the names that are taken.
    """
    run = get_run_of_call(context)
    there = {each.name: run.toolbox.get(each.name) for each in skill.tools}
    run.add_tools([each for each in skill.tools if there[each.name] is None])
    wrapped = [each if run.spec.wrap_tool is None else run.spec.wrap_tool(each) for each in skill.tools]
    return [each.name for each in wrapped if (other := there.get(each.name)) is not None and other.spec != each.spec]


def _describe_withheld_tools(names: list[str]) -> str:
    """Return the note for the model about tools that were not offered."""
    if not names:
        return ""
    which = ", ".join([f"`{name}`" for name in names])
    return f"This skill has tools of its own that are not offered, since others have their names already: {which}"
