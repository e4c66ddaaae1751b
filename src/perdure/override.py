"""What may differ from the agent for one run: checked, kept in the log, and found again. Above: sessions. Below: core.

What is data is recorded in `RunStarted`, so that `resume` goes on in the same way. What is code cannot be kept; its
names are, and it has to be given again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypedDict, cast

import msgspec

from .core.error import ConfigError, UsageError
from .core.ledger import Ledger
from .core.message import RESULT_TYPES, Content, Message, ResultPart, Text, parts_of, storable
from .core.model import Model, Settings
from .core.permission import Gate
from .core.plain import to_jsonable
from .core.run import CancelMode, Engine
from .core.stop import Limits
from .core.tool import D, Tool
from .output import Output, output_of


class Overrides(TypedDict, Generic[D], total=False):
    """What may differ from the agent for one run. `D` is what the agent is given as `deps`."""

    model: Model | str
    role: str
    instructions: str
    tools: Sequence[Tool[..., Any]]
    limits: Limits
    settings: Settings
    permission: Gate | None
    engine: Engine
    deps: D
    ledger: Ledger | None


class Options(Overrides[Any], total=False):
    """What a run is asked for, besides its prompt."""

    output: Output[Any]
    """What it has to make a value of."""


def with_output(overrides: Overrides[Any], output: Any) -> Options:
    """What a run is asked for, with the type of which it has to make a value, if there is one."""
    made = output_of(output)
    return cast("Options", overrides if made is None else {**overrides, "output": made})


def as_message(content: Content | Message, origin: str = "") -> Message:
    """What callers pass, as a message that can be kept and sent."""
    given = content if isinstance(content, Message) else Message("user", parts_of(content))
    if given.role != "user":
        message = f"a message with role {given.role!r} cannot be sent to an agent: only 'user' messages can"
        raise ConfigError(message)
    parts = [storable(part) if isinstance(part, RESULT_TYPES) else None for part in given.parts]
    if not parts or None in parts:
        message = f"{content!r} cannot be sent to an agent: give text, a part such as Image(…), or a list of them"
        raise ConfigError(message)
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        message = "the prompt is empty: say something"
        raise ConfigError(message)
    beside = _beside(given, origin) if given is content else Message("user", origin=origin)
    return msgspec.structs.replace(beside, parts=tuple(cast("list[ResultPart]", parts)))


def _beside(given: Message, origin: str) -> Message:
    """What a message has besides its parts, checked: it comes into the log, and has to be read again."""
    try:
        metadata = to_jsonable(given.metadata)
        rest = msgspec.to_builtins(msgspec.structs.replace(given, parts=(), metadata=metadata))
        return msgspec.convert({**rest, "origin": rest.get("origin") or origin}, Message)
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(f"{given!r} is no proper message ({error}): use perdure.user(…) to make one") from error


def check_mode(mode: CancelMode) -> None:
    """Say how a run can be cancelled."""
    if mode not in {"now", "after_tools", "after_turn"}:
        message = f"cancel mode {mode!r} is not known: use 'now', 'after_tools' or 'after_turn'"
        raise ConfigError(message)


def check_overrides(overrides: Options) -> None:
    """Say which override cannot work, before anything is stored."""
    for name, value in overrides.items():
        if name not in Options.__annotations__:
            known = ", ".join(Options.__annotations__)
            raise ConfigError(f"a run does not take {name!r}: what may differ from the agent is {known}")
        kind = _KINDS.get(name)
        if kind is not None and not isinstance(value, kind):
            raise ConfigError(f"{name}={value!r} cannot be used for a run: give a {kind.__name__}")
        if name == "ledger" and value is not None and not isinstance(value, Ledger):
            raise ConfigError(f"ledger={value!r} cannot be used for a run: give a Ledger(…)")
        if (name == "engine" or (name == "permission" and value is not None)) and not callable(value):
            raise ConfigError(f"{name}={value!r} cannot be used for a run: give a function")


_CODE = "code"
"""The option that names the overrides which are code."""

_KINDS: Mapping[str, type] = {"instructions": str, "role": str, "limits": Limits, "settings": Settings}


def recorded(overrides: Options) -> dict[str, Any]:
    """What `resume` has to know of the overrides; whatever is code has to be given again."""
    names = ("instructions", "role", "limits", "settings", "model")
    given = {name: value for name, value in overrides.items() if name in names}
    if not isinstance(given.get("model"), str):
        given.pop("model", None)
    kept: dict[str, Any] = msgspec.to_builtins(given)
    code = sorted(set(overrides) - set(given))
    return {**kept, _CODE: code} if code else kept


def restored(options: Mapping[str, Any], again: Options) -> Options:
    """The overrides of a run that is taken up again. Raises `UsageError` when code is missing."""
    missing = [name for name in options.get(_CODE, ()) if name not in again]
    if missing:
        given = ", ".join(f"{name}=…" for name in missing)
        raise UsageError(f"this run was begun with code of its own, which no log can keep: use resume({given})")
    return cast("Options", msgspec.convert(options, _Kept))


class _Kept(TypedDict, total=False):
    """The overrides that are data."""

    instructions: str
    role: str
    limits: Limits
    settings: Settings
    model: str
