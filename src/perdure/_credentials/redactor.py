"""The redactor of an agent: it remembers the secrets passed to tools, and redacts them from all output and errors."""

import inspect
import logging
import traceback
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast
from weakref import WeakSet

from perdure._core.values.error import ToolError
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import error_message

from .fixed_redactor import FixedSecretsRedactor, RedactingStream
from .secret import Secret, check_secret_value, is_a, type_of
from .vault import Vault, list_secret_names

_PLAIN = (str, bytes, bool, int, float, type(None))
_MOST_FRAMES = 20


def redact_error(error: BaseException, fixed: FixedSecretsRedactor) -> BaseException:
    """Return a copy of an exception with all secrets that `fixed` knows replaced by their placeholders."""
    text = fixed.redact_text(error_message(error))
    new = _rebuild_error(error, fixed)
    if new is None or error_message(new) != text or _has_secret_in_repr(new, fixed):
        new = _build_text_error(error, text)
    for note in (*_get_notes(error), *_format_traceback_note(error)):
        new.add_note(fixed.redact_text(note))
    return new


def has_secret(error: BaseException, fixed: FixedSecretsRedactor) -> bool:
    """Return True if an exception, logged with its traceback and causes, would show a secret that `fixed` knows."""
    text = "".join(traceback.format_exception(error))
    return fixed.redact_text(text) != text


def _rebuild_error(error: BaseException, fixed: FixedSecretsRedactor) -> BaseException | None:
    """Build an error of the same class from redacted arguments; `None` if that does not work."""
    kind = type_of(error)
    if is_a(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        inner = [redact_error(each, fixed) for each in group.exceptions]
        arguments: tuple[Any, ...] = (fixed.redact_text(group.message), inner)
    else:
        arguments = tuple([_redact_attribute(each, fixed) for each in error.args])
    try:
        new: BaseException = kind.__new__(kind, *arguments)
        new.args = arguments
        for name, value in vars(error).items():
            if name != "__notes__" and _is_plain(value):
                setattr(new, name, _redact_attribute(value, fixed))
    except Exception:  # noqa: BLE001 - a class may make its errors in any way it likes
        return None
    return new


def _has_secret_in_repr(new: BaseException, fixed: FixedSecretsRedactor) -> bool:
    """Return True if the `repr` of an exception still contains a secret."""
    try:
        text = repr(new)
    except Exception:  # noqa: BLE001 - as above
        return True
    return fixed.redact_text(text) != text


def _build_text_error(error: BaseException, text: str) -> BaseException:
    """Build an exception that contains only this text, of a subclass with the same name."""
    kind = type_of(error)

    def says(_: BaseException) -> str:
        return text

    def shows(_: BaseException) -> str:
        return f"{kind.__name__}({text!r})"

    members: dict[str, Any] = {
        "__str__": says,
        "__repr__": shows,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    try:
        silent = cast("type[BaseException]", type(kind.__name__, (kind,), members))
    except Exception:  # noqa: BLE001 - a class that cannot be inherited from
        return RuntimeError(f"{kind.__name__}: {text}")
    try:
        new = silent.__new__(silent)
    except Exception:  # noqa: BLE001 - it needs arguments
        new = BaseException.__new__(silent)
    new.args = (text,)
    return new


def _redact_attribute(value: Any, fixed: FixedSecretsRedactor) -> Any:
    """Redact an attribute of an error; an object is replaced by its redacted text."""
    return fixed.redact_value(value) if _is_plain(value) else fixed.redact_text(error_message(RuntimeError(value)))


def _is_plain(value: Any) -> bool:
    if is_a(value, dict):
        return all(map(_is_plain, value.values()))
    if is_a(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _get_notes(error: BaseException) -> list[str]:
    notes: Any = getattr(error, "__notes__", ())
    return [str(each) for each in notes] if is_a(notes, (list, tuple)) else []


def _format_traceback_note(error: BaseException) -> Iterator[str]:
    """Yield a note with the traceback of an error, without values of variables."""
    frames = traceback.extract_tb(error.__traceback__, limit=-_MOST_FRAMES)
    if frames:
        steps = [f'  File "{each.filename}", line {each.lineno}, in {each.name}' for each in frames]
        yield "\n".join(["raised at (most recent call last):", *steps])


T = TypeVar("T")
E = TypeVar("E", bound=Event)

logger = logging.getLogger("perdure")

MAX_VALUES = 32
"""Maximum number of values per name, the oldest are dropped: a credential may be renewed again and again."""


class Redactor:
    """Remembers the secrets that were passed to tools, and redacts them from texts, events and errors."""

    __slots__ = ("__weakref__", "_confidants", "_fixed", "_values")

    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}
        self._fixed: FixedSecretsRedactor | None = None
        self._confidants: WeakSet[Redactor] = WeakSet()
        """Redactors that get each value that this one learns."""

    def __repr__(self) -> str:
        return f"Redactor({', '.join(self._values)})"

    @property
    def fixed_redactor(self) -> FixedSecretsRedactor | None:
        """Filter that redacts the secrets known by now; `None` if there are none yet."""
        if self._fixed is None and self._values:  # made at first use: it takes some milliseconds
            self._fixed = FixedSecretsRedactor(
                [(name, value) for name, values in self._values.items() for value in values]
            )
        return self._fixed

    def learn_value(self, name: str, value: str) -> None:
        """Remember a secret and its name, and redact it from now on."""
        known = self._values.get(name, [])
        if value not in known:
            self._values[name] = [*known, check_secret_value(name, value)][-MAX_VALUES:]
            self._fixed = None
            for each in list(self._confidants):
                each.learn_value(name, value)

    def share_with(self, other: "Redactor") -> None:
        """Pass all secrets that this redactor knows, and will learn, on to another redactor, as long as that one
        exists.
        """
        self._confidants.add(other)
        for name, values in self._values.items():
            for value in values:
                other.learn_value(name, value)

    async def resolve_values(self, vault: Vault, names: Iterable[str]) -> dict[str, str]:
        """Get the secrets of these names from a vault, remember and return them. Raises `ToolError` for an unknown
        name.
        """
        values: dict[str, str] = {}
        for name in names:
            value = await _resolve_value(vault, name)
            if value is None:
                raise ToolError(await _describe_unknown_name(vault, name))
            values[name] = check_secret_value(name, value)
            self.learn_value(name, values[name])
        return values

    async def recall_values(self, vault: Vault, names: Iterable[str]) -> None:
        """Get the secrets of these names from a vault to redact them, because an earlier process may have used them.

        A name without a value is skipped, and so is one for which the vault fails.
        """
        for name in names:
            try:
                value = await _resolve_value(vault, name)
                if value is not None:
                    self.learn_value(name, check_secret_value(name, value))
            except Exception as error:  # noqa: BLE001 - any vault: a run that does not need it must not fail
                logger.warning("credential %r cannot be looked up: %s", name, type(error).__name__)  # not its text

    def text(self, text: str) -> str:
        """Return the text with all known secrets replaced by placeholders."""
        fixed = self.fixed_redactor
        return text if fixed is None else fixed.redact_text(text)

    def value(self, value: T) -> T:
        """Return any object with the known secrets in its texts redacted; see `FixedSecretsRedactor.redact_value`."""
        fixed = self.fixed_redactor
        return value if fixed is None else cast("T", fixed.redact_value(value))

    def event(self, event: E) -> E:
        """Return the event with the known secrets redacted, before it is stored or shown.

        Deltas are redacted one by one: a value that is split across several is redacted by `redacted_model`, which can
        delay ambiguous text.
        """
        fixed = self.fixed_redactor
        return event if fixed is None else cast("E", fixed.redact_value(event))

    def stream(self) -> "LiveRedactingStream":
        """Return a redactor for one text that arrives in pieces, since a secret may be split across them."""
        return LiveRedactingStream(self)

    def error(self, error: BaseException) -> BaseException:
        """Return the exception with the known secrets redacted, without its causes and traceback frames."""
        fixed = self.fixed_redactor
        if fixed is None:
            return error

        return redact_error(error, fixed)


class LiveRedactingStream:
    """Redacts a text that arrives in pieces, also secrets that its redactor learns while the text arrives."""

    __slots__ = ("_redactor", "_stream")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._stream: RedactingStream | None = None

    def feed(self, chunk: str) -> str:
        """Add a piece of the text; return the redacted text that can be shown by now."""
        fixed = self._redactor.fixed_redactor
        if fixed is None:
            return chunk
        self._stream = self._stream or RedactingStream(fixed)
        self._stream.fixed = fixed
        return self._stream.feed(chunk)

    def end(self) -> str:
        """End the text; return the rest of it, redacted."""
        return "" if self._stream is None else self._stream.end()


async def _resolve_value(vault: Vault, name: str) -> str | Secret | None:
    found = vault.resolve(name)
    return await found if inspect.isawaitable(found) else found


async def _describe_unknown_name(vault: Vault, name: str) -> str:
    names = await list_secret_names(vault)
    known = f"known names are {', '.join(map(repr, names))}" if names else "no names are known"
    return f"unknown credential {name!r}, {known}"
