"""An error without the values in it, as it may be told to a model, logged and shown. Above: `redactor.py`.

It is of the same class where that is possible, has no chain and no frames (whoever logs local variables would find the
values in them), and says in a note where it was raised.
"""

import traceback
from collections.abc import Iterator
from typing import Any, cast

from perdure.core.plain import words_of

from .look import is_a, type_of
from .scrub import Scrubber

_PLAIN = (str, bytes, bool, int, float, type(None))
_MOST_FRAMES = 20


def scrubbed_error(error: BaseException, scrubber: Scrubber) -> BaseException:
    """Another error like this one, without the values."""
    text = scrubber.text(words_of(error))
    new = _rebuilt(error, scrubber)
    if new is None or words_of(new) != text or _gives_away(new, scrubber):
        new = _saying(error, text)
    for note in (*_notes(error), *_place(error)):
        new.add_note(scrubber.text(note))
    return new


def gives_away(error: BaseException, scrubber: Scrubber) -> bool:
    """Whether a value stands in what would be logged of an error, its chain included."""
    text = "".join(traceback.format_exception(error))
    return scrubber.text(text) != text


def _rebuilt(error: BaseException, scrubber: Scrubber) -> BaseException | None:
    """Made as its class makes one, of scrubbed arguments; `None` when that does not work."""
    kind = type_of(error)
    if is_a(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        inner = [scrubbed_error(each, scrubber) for each in group.exceptions]
        arguments: tuple[Any, ...] = (scrubber.text(group.message), inner)
    else:
        arguments = tuple([_plain(each, scrubber) for each in error.args])
    try:
        new: BaseException = kind.__new__(kind, *arguments)
        new.args = arguments
        for name, value in vars(error).items():
            if name != "__notes__" and _is_plain(value):
                setattr(new, name, _plain(value, scrubber))
    except Exception:  # noqa: BLE001 - a class may make its errors in any way it likes
        return None
    return new


def _gives_away(new: BaseException, scrubber: Scrubber) -> bool:
    """Whether its `repr` still holds a value."""
    try:
        text = repr(new)
    except Exception:  # noqa: BLE001 - as above
        return True
    return scrubber.text(text) != text


def _saying(error: BaseException, text: str) -> BaseException:
    """An error of a class below that of the first, by the same name, that says this and knows nothing else."""
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
    except Exception:  # noqa: BLE001 - it wants to be given more than nothing
        new = BaseException.__new__(silent)
    new.args = (text,)
    return new


def _plain(value: Any, scrubber: Scrubber) -> Any:
    """What is left of something that an error holds: of objects, their `repr`."""
    return scrubber.value(value) if _is_plain(value) else scrubber.text(words_of(RuntimeError(value)))


def _is_plain(value: Any) -> bool:
    if is_a(value, dict):
        return all(map(_is_plain, value.values()))
    if is_a(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _notes(error: BaseException) -> list[str]:
    notes: Any = getattr(error, "__notes__", ())
    return [str(each) for each in notes] if is_a(notes, (list, tuple)) else []


def _place(error: BaseException) -> Iterator[str]:
    """Where it was raised, for whoever has to find out why."""
    frames = traceback.extract_tb(error.__traceback__, limit=-_MOST_FRAMES)
    if frames:
        steps = [f'  File "{each.filename}", line {each.lineno}, in {each.name}' for each in frames]
        yield "\n".join(["raised at (most recent call last):", *steps])
