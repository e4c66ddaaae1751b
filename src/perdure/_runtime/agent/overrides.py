"""Overrides: options that differ from the agent's for one run, checked, stored in the log, and restored on resume.

Overrides that are data are stored in `RunStarted`, so that `resume` continues with them, and so is the schema of the
output. Overrides that are code cannot be stored; their names are, and they have to be passed again.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, cast

import msgspec

from perdure._core.model.budget import Budget
from perdure._core.model.protocol import Model, Settings
from perdure._core.model.size_limit import check_content_size
from perdure._core.run.outcome import Outcome
from perdure._core.run.spec import CancelMode, Engine
from perdure._core.run.stop import DefaultLimit, Limits, merge_limits
from perdure._core.schema.problems import Invalid
from perdure._core.tools.context import D
from perdure._core.tools.tool import Tool
from perdure._core.values import checks
from perdure._core.values.error import ConfigError, UsageError
from perdure._core.values.event import RunStarted
from perdure._core.values.jsonable import convert, replace_surrogates, to_jsonable
from perdure._core.values.message import RESULT_TYPES, Content, Message, Part, ResultPart, Text, sanitize_part, to_parts
from perdure._core.watch import Watcher
from perdure._engines.registry import open_engine

from .output import WITH_ANSWER, Output, OutputSettingsRecord, SchemaOutput, parse_run_output, to_output

if TYPE_CHECKING:
    from perdure._core.permission.gate import Gate

Prompt: TypeAlias = str | Part | Message | Iterable[str | Part | Message]
"""A prompt: text, parts, a user's message; or a whole conversation, whose last message is answered."""


class Overrides(TypedDict, Generic[D], total=False):
    """Overrides of an agent's options for one run, such as model and tools. `D` is the type of the agent's `deps`.

    - In place of the agent's: `model`, `role`, `instructions`, `tools`, `engine`, and `deps` that are no dict.
    - Merged with the agent's: `limits` (see `Limits`), `settings` (those that are set here count), and `deps` of two
      dicts (by key).
    - In addition to the agent's: `watchers`; `budget`, so that both have to allow a request; and `permission`, so that
      both have to allow a call. With `narrow_permission=False` the `permission` of the run decides alone.

    What is not listed cannot be overridden: stop conditions, guardrails, compaction and the others are the agent's.
    `agent.replace(…)` makes another agent. `output`, the type of the answer, is a parameter of its own where a run can
    have one.
    """

    model: Model | str
    role: str
    instructions: str
    tools: Sequence[Tool[..., Any]]
    limits: Limits
    settings: Settings
    permission: "Gate | None"
    narrow_permission: bool
    engine: Engine | str
    deps: D
    budget: Budget | None
    watchers: Sequence[Watcher]


ChooseOverrides: TypeAlias = Callable[[str], Overrides[D] | Awaitable[Overrides[D]]]
"""Function that returns the options for the runs of a session, by its id; plain or async."""


class RunOverrides(Overrides[Any], total=False):
    """The `Overrides` of one run, plus the output type of the run."""

    output: Output[Any]
    """The type that the run has to return a value of."""


def add_output(overrides: Overrides[Any], output: Any) -> RunOverrides:
    """Return the overrides of a run with the output type added, if there is one."""
    made = to_output(output)
    return cast("RunOverrides", overrides if made is None else {**overrides, "output": made})


def is_conversation(prompt: object) -> bool:
    """Return True if a prompt is a list of messages, rather than one message or its content."""
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        return False
    return any(isinstance(each, Message) for each in cast("Sequence[object]", prompt))


def to_user_message(content: Content | Message, origin: str = "") -> Message:
    """Convert a prompt to a user message that can be stored and sent. Raises `ConfigError` if it cannot be."""
    if type(content) is str and content and not content.isspace():  # nearly always
        check_content_size((text := Text(replace_surrogates(content)),), "the message")
        return Message("user", (text,), origin)
    given = content if isinstance(content, Message) else Message("user", to_parts(content))
    if given.role != "user":
        message = f"a message with role {given.role!r} cannot be sent to an agent: only 'user' messages can"
        raise ConfigError(message)
    parts = [sanitize_part(part) if isinstance(part, RESULT_TYPES) else None for part in given.parts]
    if not parts or None in parts:
        message = f"{content!r} cannot be sent to an agent: give text, a part such as Image(…), or a list of them"
        raise ConfigError(message)
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        message = "the prompt is empty: give some text, or a part such as Image(…)"
        raise ConfigError(message)
    check_content_size(cast("list[ResultPart]", parts), "the message")
    checked = _validate_message_fields(given, origin) if given is content else Message("user", origin=origin)
    return msgspec.structs.replace(checked, parts=tuple(cast("list[ResultPart]", parts)))


def _validate_message_fields(given: Message, origin: str) -> Message:
    """Validate the fields of a message other than its parts, so that it can be stored and read again."""
    try:
        metadata = to_jsonable(given.metadata)
        rest = msgspec.to_builtins(msgspec.structs.replace(given, parts=(), metadata=metadata))
        return convert({**rest, "origin": rest.get("origin") or origin}, Message)
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(f"{given!r} is not a valid message ({error}): use perdure.user(…) to make one") from error


def check_cancel_mode(mode: CancelMode) -> None:
    """Raise `ConfigError` unless `mode` is a cancel mode."""
    if mode not in {"now", "after_tools", "after_turn"}:
        message = f"cancel mode {mode!r} is not known: use 'now', 'after_tools' or 'after_turn'"
        raise ConfigError(message)


def check_overrides(overrides: RunOverrides) -> None:
    """Raise `ConfigError` for an override that is unknown or of the wrong type, before anything is stored."""
    for name, value in overrides.items():
        if name not in RunOverrides.__annotations__:
            known = ", ".join(Overrides.__annotations__)
            near = checks.suggest_name(name, RunOverrides.__annotations__)
            raise ConfigError(f"a run has no override {name!r}: {near}use one of {known}")
        kind = _OVERRIDE_TYPES.get(name)
        if kind is not None and not isinstance(value, kind):
            raise ConfigError(f"{name}={value!r} cannot be used for a run: give a {kind.__name__}")
        if name == "watchers":
            checks.require_callables("run", name, value)
        if name == "budget" and value is not None and not isinstance(value, Budget):
            raise ConfigError(f"budget={value!r} cannot be used for a run: give a Budget(…)")
        if name == "engine" and isinstance(value, str):
            open_engine(value)
        elif (name == "engine" or (name == "permission" and value is not None)) and not callable(value):
            raise ConfigError(f"{name}={value!r} cannot be used for a run: give a function")


_CODE_KEY = "code"
"""The key that lists the names of overrides that are code."""
_OUTPUT_KEY = "output"
"""The key of the output's description."""

_NOT_RECORDED = frozenset({"watchers"})
"""Overrides that do not change what the run does: it can be resumed without them."""

_OVERRIDE_TYPES: Mapping[str, type] = {
    "instructions": str,
    "role": str,
    "limits": Limits,
    "settings": Settings,
    "narrow_permission": bool,
}


def encode_overrides(overrides: RunOverrides) -> dict[str, Any]:
    """Encode the overrides of a run as JSON data for the log; of Python objects, only the names are stored.

    Tools and other code must be given again when the run is resumed.
    """
    if not overrides:
        return {}
    names = ("instructions", "role", "limits", "settings", "model", "engine", "narrow_permission")
    given = {name: value for name, value in overrides.items() if name in names}
    for name in ("model", "engine"):
        if not isinstance(given.get(name), str):
            given.pop(name, None)
    kept: dict[str, Any] = msgspec.to_builtins(given)
    if (limits := overrides.get("limits")) is not None:
        kept["limits"] = {name: value for name, value in kept["limits"].items() if _is_set(limits, name)}
    if (output := overrides.get("output")) is not None:
        kept[_OUTPUT_KEY] = msgspec.to_builtins(output.record)
    code = sorted(set(overrides) - set(kept) - _NOT_RECORDED)
    return {**kept, _CODE_KEY: code} if code else kept


def _is_set(limits: Limits, name: str) -> bool:
    """Return True if a limit was set, so that it is stored."""
    return not isinstance(getattr(limits, name), DefaultLimit) and (name != "widens" or bool(limits.widens))


def merge_overrides(overrides: RunOverrides, later: RunOverrides) -> RunOverrides:
    """Return the overrides of a run with those added that it is given later, as it is resumed.

    Limits and settings are merged field by field, as with those of the agent.
    """
    merged: RunOverrides = {**overrides, **later}
    if "limits" in overrides and "limits" in later:
        merged["limits"] = merge_limits(overrides["limits"], later["limits"])
    if "settings" in overrides and "settings" in later:
        merged["settings"] = merge_settings(overrides["settings"], later["settings"])
    return merged


def merge_settings(settings: Settings, later: Settings) -> Settings:
    """Return the settings of a model with later ones merged into them: those that are set there. Dicts are merged."""
    changes: dict[str, Any] = {}
    for name in later.__struct_fields__:
        value: Any = getattr(later, name)
        if isinstance(value, Mapping):
            value = {**getattr(settings, name), **cast("Mapping[str, Any]", value)}
        if value is not None and value != ():
            changes[name] = value
    return msgspec.structs.replace(settings, **changes)


def restore_overrides(recorded_options: Mapping[str, Any], given_again: RunOverrides) -> RunOverrides:
    """Decode the stored overrides of a resumed run. Raises `UsageError` if a function among them is not given again."""
    missing = [name for name in recorded_options.get(_CODE_KEY, ()) if name not in given_again]
    if missing:
        given = ", ".join(f"{name}=…" for name in missing)
        raise UsageError(
            f"this run was begun with code, which a log cannot store: pass {given} again to the call that continues it "
            "(run, resume, wake, attend or attend_all)"
        )
    options = convert(recorded_options, _RecordedOverrides)
    restored = cast("RunOverrides", {name: value for name, value in options.items() if name != _OUTPUT_KEY})
    return {**restored, "output": SchemaOutput(options["output"])} if "output" in options else restored


def parse_stored_output(outcome: Outcome[Any], given: Output[Any] | None, input_id: str) -> Outcome[Any]:
    """Return the outcome of an earlier run, with its output parsed again from the stored answer.

    The type is the one that is given now; without one, the value is JSON that fits the stored schema. Raises
    `UsageError` if the answer is not of the type that is given.
    """
    started = next((each.event for each in outcome.entries if isinstance(each.event, RunStarted)), None)
    output = given or (None if started is None else _restore_output(started.options))
    if outcome.status not in WITH_ANSWER or output is None:
        return outcome
    try:
        value = parse_run_output(outcome.new_messages, output)
    except Invalid as error:
        if given is None or outcome.status != "done":
            return outcome
        message = (
            f"the stored answer to input {input_id!r} is no valid {given.spec.name}: {error}. Repeat a prompt with the "
            "output that it was sent with, or give it another input_id"
        )
        raise UsageError(message) from None
    return msgspec.structs.replace(outcome, output=value)


def _restore_output(recorded_options: Mapping[str, Any]) -> "Output[Any] | None":
    """Return the output that a run was begun with, as its schema in the log describes it; `None` if it had none."""
    recorded = recorded_options.get(_OUTPUT_KEY)
    return None if recorded is None else SchemaOutput(convert(recorded, OutputSettingsRecord))


class _RecordedOverrides(TypedDict, total=False):
    """The overrides that are data rather than code, as stored in the log."""

    instructions: str
    role: str
    limits: Limits
    settings: Settings
    narrow_permission: bool
    model: str
    engine: str
    output: OutputSettingsRecord
