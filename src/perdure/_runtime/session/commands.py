"""What a session sends to its driver, and prompts as messages."""

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from msgspec import Struct

from perdure._core.log.fold import State
from perdure._core.run.calling_run import add_labels_of_caller
from perdure._core.values import checks
from perdure._core.values.clock import new_id
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import replace_surrogates
from perdure._core.values.message import Content, Message
from perdure._runtime.agent.active import check_role
from perdure._runtime.agent.overrides import Prompt, RunOverrides, check_overrides, is_conversation, to_user_message
from perdure._runtime.agent.spec import AgentSpec
from perdure._runtime.resume.reasons import is_resumable


class RunPromptCommand(Struct, frozen=True):
    """Command to run the agent on a prompt."""

    run_id: str
    overrides: RunOverrides
    messages: tuple[Message, ...]
    """The prompt."""
    events: tuple[Event, ...] = ()
    """Events of the commands and skills in the prompt, stored before it."""
    answer: Message | None = None
    """The reply of a `/name` command that answers in place of the model."""
    input_id: str = ""
    """The caller's id for the prompt: a prompt sent twice under the same id is answered once."""
    take_over: bool = False
    """True to take the session from the process that drives it."""
    history: tuple[Message, ...] = ()
    """Messages that precede the prompt, brought along by the caller. They are stored before the run begins."""


class ResumeCommand(Struct, frozen=True):
    """Command to continue the run that was interrupted, or that waited for an answer."""

    overrides: RunOverrides = {}
    take_over: bool = False
    is_optional: bool = False
    """True if it is no error when there is nothing to resume: another process may have been quicker."""
    unpark: bool = False
    """True to take up a run that was parked, and to give it as many attempts as a new one."""
    run_id: str = ""


class WakeCommand(Struct, frozen=True):
    """Command to begin a run without a prompt, on messages and inbox results that have arrived."""

    run_id: str
    overrides: RunOverrides = {}


class CallToolCommand(Struct, frozen=True):
    """Command to call one tool without a model."""

    run_id: str
    overrides: RunOverrides
    """The overrides, with an engine that makes the call."""
    tool: str


class CompactCommand(Struct, frozen=True):
    """Command to compact (summarize) the conversation between two runs."""

    run_id: str
    overrides: RunOverrides = {}


DriverCommand: TypeAlias = RunPromptCommand | ResumeCommand | WakeCommand | CallToolCommand | CompactCommand


class RunStartValues(Struct, frozen=True):
    """The values that are decided before a run starts: its id, its overrides, and the events that are stored first."""

    run_id: str
    overrides: RunOverrides
    opening: tuple[Event, ...] = ()
    """Events stored before the loop begins; those that are not durable are only shown to watchers."""
    skills: tuple[str, ...] = ()
    """The names of skills that are loaded as it begins."""
    is_answered: bool = False
    """True if a `/name` command has answered in place of the model."""
    may_wait: bool = True
    is_resumed: bool = False
    taken: Sequence[str] = ()
    """The entry ids of the first opening events, equal to the ids of the posts that they consume."""


def build_run_command(
    agent: AgentSpec[Any],
    role: str,
    prompt: Prompt,
    options: RunOverrides,
    input_id: str = "",
    *,
    take_over: bool = False,
) -> RunPromptCommand:
    """Validate the arguments of a run in a session with this role, and build the command for the driver."""
    check_overrides(options)
    checks.require_text("session.run", "input_id", input_id)
    if input_id and replace_surrogates(input_id) != input_id:
        checks.raise_config_error("session.run", "input_id", input_id, "give text that can be encoded as UTF-8")
    checks.require_bool("session.run", "take_over", take_over)
    check_role(agent, options.get("role", role))
    history, messages = split_history_from_prompt(prompt)
    return RunPromptCommand(
        new_id(), add_session_role(options, role), messages, input_id=input_id, take_over=take_over, history=history
    )


def add_session_role(options: RunOverrides, role: str) -> RunOverrides:
    """Add the role of a session, if it has one, unless the run asks for another; a resumed run keeps its own."""
    return {**options, "role": role} if role and "role" not in options else options


def build_wake_command(state: State | None, options: RunOverrides, role: str) -> DriverCommand:
    """Build the command that continues a session: resume its interrupted run, or begin one without a prompt."""
    if state is not None and is_resumable(state):
        return ResumeCommand(options, is_optional=True)
    return WakeCommand(new_id(), add_session_role(options, role))


def build_resume_command(where: str, options: RunOverrides, take_over: object, unpark: object) -> ResumeCommand:
    """Validate the arguments of a call to `resume`, and build the command for the driver."""
    check_overrides(options)
    checks.require_bool(where, "take_over", take_over)
    checks.require_bool(where, "unpark", unpark)
    return ResumeCommand(options, bool(take_over), unpark=bool(unpark), run_id=new_id())


def split_history_from_prompt(prompt: Prompt) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Split a prompt into the messages that precede it, if it is a conversation, and the message to answer."""
    if not is_conversation(prompt):
        return (), (to_user_message(cast("Content | Message", prompt)),)
    from .imported import split_prompt_from_transcript  # at first use: most prompts are one message

    return split_prompt_from_transcript(cast("Sequence[Message]", prompt))


def to_user_or_assistant_message(content: Content | Message, origin: str) -> Message:
    """Convert content from a host program to a user message, or to an assistant message if it has that role.

    It has the labels of the run whose tool or engine sends it, if one does.
    """
    if not isinstance(content, Message) or content.role != "assistant":
        return add_labels_of_caller(to_user_message(content, origin))
    from .imported import to_assistant_message  # at first use: hosts seldom speak for the assistant

    return add_labels_of_caller(to_assistant_message(content, origin))
