"""Wrap a tool so that it gets secrets for `{{name}}` in its arguments, and secrets are redacted from its output.

The model writes `{{name}}`. The transcript, the permission gate, hashes and hooks see only that; the function gets the
value; and in all of its output the value is replaced by `{{name}}` again.
"""

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Arguments, Tool
from perdure._core.values import checks
from perdure._core.values.event_class import Event

from .redactor import Redactor
from .secret import find_placeholder_names, substitute_placeholders
from .vault import Vault, check_secret_use, check_vault

ToolCallback: TypeAlias = Callable[[Mapping[str, str], ToolContext[Any]], Awaitable[Any]]


def credentialed(tool: Tool[..., Any], vault: Vault, *, redactor: Redactor | None = None) -> Tool[..., Any]:
    """Wrap a tool so that `{{name}}` in its arguments becomes the secret of that name in a vault.

    The secret is redacted from all output of the tool.

    Values are inserted after validation and permission, and redacted from its result, errors, progress, questions and
    stored data, also where they appear in parts or encoded. Tools that share a `redactor` redact each other's
    values.
    """
    if not isinstance(tool, Tool):
        checks.raise_config_error("credentialed", "tool", tool, "give a tool; @tool makes one of a function")
    check_vault("credentialed", "vault", vault)
    if redactor is not None and not isinstance(redactor, Redactor):
        checks.raise_config_error("credentialed", "redactor", redactor, "give a Redactor(), or none")
    knows = Redactor() if redactor is None else redactor
    inner, receiver = tool.call, tool.receiver

    async def call(arguments: Arguments, context: ToolContext[Any]) -> Any:
        names = find_placeholder_names({name: value for name, value in arguments.items() if name != receiver})
        if not names and knows.fixed_redactor is None:
            return await inner(arguments, context)
        for name in names:
            check_secret_use(vault, name, context.name, _get_target(context))

        async def effect(values: Mapping[str, str], context: ToolContext[Any]) -> Any:
            given = {
                name: each if name == receiver else substitute_placeholders(each, values)
                for name, each in arguments.items()
            }
            return await inner(given, context)

        value, failure = await _call_redacted(effect, vault, names, knows, context)
        if failure is not None:
            raise failure
        return value

    return msgspec.structs.replace(tool, call=call)


def _get_target(context: ToolContext[Any]) -> object:
    """Return the target of a call; `None` if it cannot be computed."""
    try:
        return context.target
    except Exception:  # noqa: BLE001 - the function is the tool's, and may raise anything
        return None


async def _call_redacted(
    effect: ToolCallback, vault: Vault, names: Sequence[str], redactor: Redactor, context: ToolContext[Any]
) -> tuple[Any, BaseException | None]:
    """Run the tool with its secrets, and return its redacted result or its redacted error.

    The error is returned, not raised: so nothing is chained to it, and no frame of its traceback contains a value.
    """
    discreet = RedactingContext(context, redactor)
    try:
        values = await redactor.resolve_values(vault, names)
        return redactor.value(await effect(values, discreet)), None
    except GeneratorExit:
        raise  # the whole run is being thrown away
    except BaseException as error:  # noqa: BLE001 - interrupts and groups may contain a value too
        return None, redactor.error(error).with_traceback(None)
    finally:
        discreet.flush_progress()


class RedactingContext(ToolContext[Any]):
    """Context that a tool is called with; it redacts secrets from all that the tool shows, asks, stores and records.

    It wraps the original context; attributes set on it are set on the original.
    """

    __slots__ = ("_inner", "_lock", "_redactor", "_words")

    def __init__(self, inner: ToolContext[Any], redactor: Redactor) -> None:
        self._inner: ToolContext[Any] = inner
        self._redactor: Redactor = redactor
        self._words = redactor.stream()
        self._lock: threading.Lock = threading.Lock()
        inner.redact_secrets = redactor.value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # as nothing else is set on this one

    def __setattr__(self, name: str, value: Any) -> None:
        if name in RedactingContext.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(self._inner, name, value)

    def emit(self, data: Any) -> None:
        """Emit progress of the tool, redacted. Text counts as a piece of a longer one, since a secret may be split
        across pieces.
        """
        if type(data) is not str:
            self._inner.emit(data)
            return
        with self._lock:  # keeps the order of two threads
            if (clear := self._words.feed(data)) or not data:
                self._inner.emit(clear)

    def flush_progress(self) -> None:
        """Emit the rest of the progress text, which was delayed because it might have begun a secret."""
        with self._lock:
            if rest := self._words.end():
                self._inner.emit(rest)

    async def record(self, event: Event) -> None:
        """Append an event to the log of this run, with secrets redacted."""
        await self._inner.record(self._redactor.event(event))

    async def add_to_inbox(self, tag: str, request: str, *, blocking: bool = False, wake: bool = False) -> str:
        """Add a request to the session's inbox, with secrets redacted; the answer arrives later, from outside."""
        scrubbed = self._redactor.text(request) if isinstance(request, str) else request
        return await self._inner.add_to_inbox(tag, scrubbed, blocking=blocking, wake=wake)
