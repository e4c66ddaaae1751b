"""A tool that is given credentials, and gives none away. Above: callers, assembly. Below: vaults, `redactor.py`.

The model writes `{{name}}`. The transcript, the permission gate, hashes and hooks see just that; the function gets the
value; and whatever comes back from it, by any way, has `{{name}}` in the place of the value again.
"""

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from perdure.core import check
from perdure.core.event import Event
from perdure.core.tool import Arguments, Tool, ToolContext

from .redactor import Redactor
from .substitute import names_in, substituted
from .vault import Vault, check_vault

Effect: TypeAlias = Callable[[Mapping[str, str], ToolContext[Any]], Awaitable[Any]]


def credentialed(tool: Tool[..., Any], vault: Vault, *, redactor: Redactor | None = None) -> Tool[..., Any]:
    """Let a tool use the credentials of a vault, by `{{name}}` in its arguments.

    Values are put in after validation and permission, and taken out of its result, errors, progress, questions and
    whatever it keeps, in every form of `perdure.credentials.forms`. Tools that share a `redactor` hide each other's.
    """
    if not isinstance(tool, Tool):
        check.refuse("credentialed", "tool", tool, "give a tool; @tool makes one of a function")
    check_vault("credentialed", "vault", vault)
    if redactor is not None and not isinstance(redactor, Redactor):
        check.refuse("credentialed", "redactor", redactor, "give a Redactor(), or none")
    knows = Redactor() if redactor is None else redactor
    inner, receiver = tool.call, tool.receiver

    async def call(arguments: Arguments, context: ToolContext[Any]) -> Any:
        names = names_in({name: value for name, value in arguments.items() if name != receiver})
        if not names and knows.scrubber is None:
            return await inner(arguments, context)

        async def effect(values: Mapping[str, str], context: ToolContext[Any]) -> Any:
            given = {name: each if name == receiver else substituted(each, values) for name, each in arguments.items()}
            return await inner(given, context)

        value, failure = await _attempt(effect, vault, names, knows, context)
        if failure is not None:
            raise failure
        return value

    return msgspec.structs.replace(tool, call=call)


async def _attempt(
    effect: Effect, vault: Vault, names: Sequence[str], redactor: Redactor, context: ToolContext[Any]
) -> tuple[Any, BaseException | None]:
    """What the tool returned or raised, scrubbed.

    An error is handed over, and not raised here: nothing is chained to it, and its traceback has no frame that knows a
    value.
    """
    discreet = DiscreetContext(context, redactor)
    try:
        values = await redactor.resolve(vault, names)
        return redactor.value(await effect(values, discreet)), None
    except GeneratorExit:
        raise  # the whole run is being thrown away
    except BaseException as error:  # noqa: BLE001 - interrupts and groups may hold a value too
        return None, redactor.error(error).with_traceback(None)
    finally:
        discreet.finish()


class DiscreetContext(ToolContext[Any]):
    """The context of a call that takes values out of whatever the tool shows, asks, keeps and records.

    It stands in front of the first context, and what is set on one of them is set on both.
    """

    __slots__ = ("_inner", "_lock", "_redactor", "_words")

    def __init__(self, inner: ToolContext[Any], redactor: Redactor) -> None:
        self._inner: ToolContext[Any] = inner
        self._redactor: Redactor = redactor
        self._words = redactor.stream()
        self._lock: threading.Lock = threading.Lock()
        inner.scrub = redactor.value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # for nothing else is set on this one

    def __setattr__(self, name: str, value: Any) -> None:
        if name in DiscreetContext.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(self._inner, name, value)

    def emit(self, data: Any) -> None:
        """Tell watchers how far it is. Text is taken to be a piece of a longer one, in which a value may be split."""
        if type(data) is not str:
            self._inner.emit(data)
            return
        with self._lock:  # of two threads, the first one's text is told first
            if (clear := self._words.feed(data)) or not data:
                self._inner.emit(clear)

    def finish(self) -> None:
        """Tell the rest of the text: it was held back, and nothing more comes that would make it a value."""
        with self._lock:
            if rest := self._words.end():
                self._inner.emit(rest)

    async def record(self, event: Event) -> None:
        """Put an event into the log, as one of this run."""
        await self._inner.record(self._redactor.event(event))

    async def add_to_inbox(self, tag: str, request: str, *, blocking: bool = False, wake: bool = False) -> str:
        """Ask the outside world for something that will take a while."""
        scrubbed = self._redactor.text(request) if isinstance(request, str) else request
        return await self._inner.add_to_inbox(tag, scrubbed, blocking=blocking, wake=wake)
