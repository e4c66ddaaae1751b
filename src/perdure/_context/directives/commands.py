"""Commands: functions that are called for `/name` in a user's message, with their input and results."""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from perdure._core.tools.worker.threads import THREAD_POOL
from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.error import ConfigError, PerdureError
from perdure._core.values.jsonable import error_message, replace_surrogates, short_repr
from perdure._core.values.message import RESULT_TYPES, Content, Message, Text, assistant

from .parser import NAME_PATTERN

_COMMAND_NAME: Final = re.compile(NAME_PATTERN)


class CommandFailed(PerdureError):
    """Raised when the function of a command or skill fails: the message is not stored, and the model is not called."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"the command /{name} failed, and the message was not sent: {problem}")
        self.name = name
        """Name of the command."""
        self.problem = problem
        """The error, as text."""

    def __reduce__(self) -> tuple[type["CommandFailed"], tuple[str, str]]:
        """Rebuild the error from its parts when it is copied or pickled."""
        return type(self), (self.name, self.problem)


class SessionControls(Protocol):
    """Operations on the session that a command can call. In an agent, the object is the `Session` itself."""

    @property
    def session_id(self) -> str:
        """Id of the session that the message is for."""
        ...

    async def messages(self) -> Sequence[Message]:
        """Return the messages of the conversation so far."""
        ...

    async def kept(self, name: str) -> Any:
        """Return the value that tools have stored in the session's log under this name."""
        ...

    async def configure(
        self,
        *,
        model: str | None = None,
        instructions: str | None = None,
        role: str | None = None,
        agent: str | None = None,
    ) -> None:
        """Change model, instructions, role or agent of the session from here on; `""` resets one of them."""
        ...

    async def compact(self) -> bool:
        """Replace the start of the conversation by a summary. Return True if the model is sent less from here on."""
        ...

    async def steer(self, content: Content | Message, *, post_id: str = "") -> bool:
        """Send the model a message during its run, before its next turn."""
        ...

    async def follow_up(self, content: Content | Message, *, post_id: str = "") -> bool:
        """Send the model a message after it has finished its reply."""
        ...

    async def rename(self, title: str) -> None:
        """Set the title of the session."""
        ...

    async def fork(self, session_id: str | None = None, *, at: int | None = None) -> Any:
        """Create another session that starts with this conversation."""
        ...


class CommandContext(Struct, frozen=True):
    """Input of a command's function: the name, its arguments, the message, and the session."""

    name: str
    """Name as written."""
    text: str
    """Current message, with a mark `[/name]` for each command, and as earlier commands rewrote it."""
    original: str
    """Message as typed."""
    arguments: str
    """Rest of the line after the name."""
    controls: SessionControls
    """Operations on the session. In an agent it is the `Session` itself."""


class Rewrite(Struct, frozen=True):
    """Returned by a command to replace the text of the user's message.

    Skills and files named in the new text are expanded; commands in it are not run.
    """

    text: str

    def __post_init__(self) -> None:
        checks.require_text("Rewrite", "text", self.text, non_empty=True)


class ShortCircuit(Struct, frozen=True):
    """Result of a command that answers the message itself, so that the model is not asked.

    The message and the answer are stored.
    """

    answer: str | Message
    """Text, or a whole assistant message without calls."""

    def __post_init__(self) -> None:
        if isinstance(self.answer, str):
            checks.require_text("ShortCircuit", "answer", self.answer, non_empty=True)
        elif not isinstance(self.answer, Message) or not _is_valid_answer(self.answer):
            checks.raise_config_error(
                "ShortCircuit", "answer", self.answer, "give text, or perdure.assistant(…) without calls"
            )

    @property
    def message(self) -> Message:
        """The answer as it is stored."""
        if isinstance(self.answer, Message):
            return self.answer
        return Message("assistant", assistant(replace_surrogates(self.answer)).parts, origin="hook")


CommandResult: TypeAlias = Rewrite | ShortCircuit | None
CommandHandler: TypeAlias = Callable[[CommandContext], CommandResult | Awaitable[CommandResult]]
"""Function called for each `/name`. Plain functions run on a thread."""


class Command(Struct, frozen=True, eq=False, metaclass=StrictOptionsMeta):
    """A command that users call with `/name` in a message: its name, function and description."""

    name: str
    """A letter, then letters, digits, `_` and `-`, without the slash."""
    handler: CommandHandler
    """Function of a `CommandContext` that returns a `Rewrite`, a `ShortCircuit`, or None to leave the message as is."""
    description: str = ""
    """What the command does, for help texts."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _COMMAND_NAME.fullmatch(self.name):
            checks.raise_config_error(
                "Command", "name", self.name, "use a letter, then letters, digits, '_' or '-', as in 'cost'"
            )
        checks.require_callable("Command", "handler", self.handler)
        checks.require_text("Command", "description", self.description)

    async def call_handler(self, context: CommandContext) -> CommandResult:
        """Call the command's function and return its result. Raise `CommandFailed` if it raises."""
        try:
            answer = await self._await_handler(context)
        except Exception as error:
            raise CommandFailed(self.name, f"{type(error).__name__}: {error_message(error)}") from error
        if answer is None or isinstance(answer, Rewrite | ShortCircuit):
            return answer
        raise ConfigError(
            f"the command /{self.name} returned {short_repr(answer)}: "
            "it has to return Rewrite(…), ShortCircuit(…) or None"
        )

    async def _await_handler(self, context: CommandContext) -> Any:
        handler: Callable[[CommandContext], Any] = self.handler
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
            return await handler(context)
        answer = await THREAD_POOL.run(handler, (context,), {})
        return await answer if inspect.isawaitable(answer) else answer  # as of a lambda around an async function


def index_commands(commands: Iterable[Command]) -> dict[str, Command]:
    """Return the commands in a dict by name. Raises `ConfigError` if two of them have the same name.

    An object that is not a `Command` raises it too.
    """
    named: dict[str, Command] = {}
    for hook in commands:
        if not isinstance(hook, Command):
            checks.raise_config_error("Agent", "commands", hook, "give Command('name', handler)")
        if hook.name in named:
            raise ConfigError(f"two commands are named /{hook.name}: give one of them another name")
        named[hook.name] = hook
    return named


def _is_valid_answer(message: Message) -> bool:
    """Return True if the message is valid as an assistant's answer."""
    parts = message.parts
    is_plain = all(isinstance(part, RESULT_TYPES) for part in parts)
    says_something = any(not isinstance(part, Text) or part.text.strip() for part in parts)
    return message.role == "assistant" and is_plain and says_something
