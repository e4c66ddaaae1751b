"""Handlers of `/name`: what they are given, and what they may return. Above: `directed.py`, agents. Below: `core`."""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from perdure.core import check
from perdure.core.error import ConfigError, PerdureError
from perdure.core.message import RESULT_TYPES, Content, Message, Text, assistant
from perdure.core.plain import clean, excerpt, words_of
from perdure.core.thread import THREADS

from .token import NAME

_NAME: Final = re.compile(NAME)


class HookFailed(PerdureError):
    """A hook raised an error: nothing was stored, and the model was not asked."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"the hook of /{name} failed, and the message was not sent: {problem}")
        self.name = name
        """The hook."""
        self.problem = problem
        """What it raised, in words."""

    def __reduce__(self) -> tuple[type["HookFailed"], tuple[str, str]]:
        """Made anew from its parts, when it is copied or sent to another process."""
        return type(self), (self.name, self.problem)


class Controls(Protocol):
    """What a hook can do with its session. In an agent it is the `Session` itself, which can do more."""

    @property
    def session_id(self) -> str:
        """The session that the message was for."""
        ...

    async def messages(self) -> Sequence[Message]:
        """What was said before."""
        ...

    async def kept(self, name: str) -> Any:
        """What tools have left in the log under that name."""
        ...

    async def configure(
        self,
        *,
        model: str | None = None,
        instructions: str | None = None,
        role: str | None = None,
        agent: str | None = None,
    ) -> None:
        """Change the session from here on; `""` takes it back."""
        ...

    async def compact(self) -> bool:
        """Have what was said so far summed up for the model."""
        ...

    async def steer(self, content: Content | Message, *, post_id: str = "") -> bool:
        """Tell the model something more."""
        ...

    async def follow_up(self, content: Content | Message, *, post_id: str = "") -> bool:
        """Tell the model something when it has answered."""
        ...

    async def rename(self, title: str) -> None:
        """Give the session a title."""
        ...

    async def fork(self, session_id: str | None = None, *, at: int | None = None) -> Any:
        """Another session that begins with what was said here."""
        ...


class HookContext(Struct, frozen=True):
    """What a handler is given. One for each `/name`."""

    name: str
    """The name that was written."""
    text: str
    """The message as it stands now, with a mark `[/name]` for each hook, and as hooks before this one rewrote it."""
    original: str
    """The message as it was typed."""
    arguments: str
    """What follows the name on its line."""
    controls: Controls
    """What can be done with the session. In an agent it is the `Session` itself."""


class Rewrite(Struct, frozen=True):
    """Returned by a hook: the message says this instead. Skills and files are looked for in it, hooks are not."""

    text: str

    def __post_init__(self) -> None:
        check.text("Rewrite", "text", self.text, filled=True)


class ShortCircuit(Struct, frozen=True):
    """Returned by a hook: this is the answer. It is kept with the message, and the model is not asked."""

    answer: str | Message
    """Words, or a whole message as a model would have written it, without calls."""

    def __post_init__(self) -> None:
        if isinstance(self.answer, str):
            check.text("ShortCircuit", "answer", self.answer, filled=True)
        elif not isinstance(self.answer, Message) or not _is_an_answer(self.answer):
            check.refuse("ShortCircuit", "answer", self.answer, "give words, or perdure.assistant(…) without calls")

    @property
    def message(self) -> Message:
        """The answer as it is kept."""
        if isinstance(self.answer, Message):
            return self.answer
        return Message("assistant", assistant(clean(self.answer)).parts, origin="hook")


Answer: TypeAlias = Rewrite | ShortCircuit | None
Handler: TypeAlias = Callable[[HookContext], Answer | Awaitable[Answer]]
"""Called for each `/name`. Plain functions run on a thread."""


class Hook(Struct, frozen=True, eq=False):
    """What `/name` in a message does."""

    name: str
    """A letter, then letters, digits, `_` and `-`. Written without the slash here."""
    handler: Handler
    """Given a `HookContext`; returns a `Rewrite`, a `ShortCircuit`, or nothing to let the message be."""
    description: str = ""
    """What it does, for people who ask what there is."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            check.refuse("Hook", "name", self.name, "use a letter, then letters, digits, '_' or '-', as in 'cost'")
        check.function("Hook", "handler", self.handler)
        check.text("Hook", "description", self.description)

    async def call(self, context: HookContext) -> Answer:
        """What the handler says. Raises `HookFailed` when it raises."""
        try:
            answer = await self._called(context)
        except Exception as error:
            raise HookFailed(self.name, f"{type(error).__name__}: {words_of(error)}") from error
        if answer is None or isinstance(answer, Rewrite | ShortCircuit):
            return answer
        raise ConfigError(
            f"the hook of /{self.name} returned {excerpt(answer)}: it has to return Rewrite(…), ShortCircuit(…) or None"
        )

    async def _called(self, context: HookContext) -> Any:
        handler: Callable[[HookContext], Any] = self.handler
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
            return await handler(context)
        answer = await THREADS.run(handler, (context,), {})
        return await answer if inspect.isawaitable(answer) else answer  # as of a lambda around an async function


def by_name(hooks: Iterable[Hook]) -> dict[str, Hook]:
    """Hooks by name. Raises `ConfigError` for what is none, and for two of one name."""
    named: dict[str, Hook] = {}
    for hook in hooks:
        if not isinstance(hook, Hook):
            check.refuse("Agent", "hooks", hook, "give Hook('name', handler)")
        if hook.name in named:
            raise ConfigError(f"two hooks are called /{hook.name}: give one of them another name")
        named[hook.name] = hook
    return named


def _is_an_answer(message: Message) -> bool:
    """Whether it can stand where a model's answer would."""
    parts = message.parts
    is_plain = all(isinstance(part, RESULT_TYPES) for part in parts)
    says_something = any(not isinstance(part, Text) or part.text.strip() for part in parts)
    return message.role == "assistant" and is_plain and says_something
