"""Redact secrets from an exception before it is shown to a model, logged or raised.

The result has the same class if possible, no chain and no frames (local variables in them could be logged), and a note
that says where the error was raised.
"""

import traceback
from collections.abc import Iterator
from typing import Any, cast

from perdure.core.jsonable import error_message

from .fixed_secrets_redactor import FixedSecretsRedactor
from .isinstance_without_narrowing import is_a, type_of

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
