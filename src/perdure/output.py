"""What a run has to make: a value of a type, not just words. Above: `agent.py`, `session.py`. Below: `core`.

The model is held to the type in the best way that it has: by its provider (`native`), by a tool that takes the answer
(`tool`), or by being asked for it (`prompted`). Whichever it is, what comes is checked here, and a reply that does not
fit goes back to the model with every problem named, a few times.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar, cast, get_args

import msgspec
from msgspec import Struct

from .core import check
from .core.definitions import hoisted
from .core.error import ConfigError, InvalidOutput, ToolError
from .core.message import Message, Status, ToolCall
from .core.model import ModelInfo, OutputMode, OutputSpec
from .core.outcome import Outcome
from .core.problem import Invalid, Problem
from .core.run import Accept, Accepted, Again, Engine, Run
from .core.schema import convert, for_type
from .core.tool import Tool, tool_from_schema
from .core.toolbox import Toolbox

T = TypeVar("T")

TOOL = "final_answer"
"""The tool that takes the answer of models that are held to a type by one."""
ORIGIN = "output"
"""Marks what the model is told when its answer does not fit."""
REPAIRS = 2
"""How often a model is told so, unless an `Output` says otherwise."""

_BOX = "value"
"""Where a value that is no object is put: providers want an object."""


class Output(Generic[T]):
    """A type that a run has to make a value of, and how. `run(output=Plan)` is short for `run(output=Output(Plan))`."""

    __slots__ = ("_boxed", "_type", "mode", "repairs", "spec")

    def __init__(self, type_: type[T], *, mode: OutputMode | None = None, repairs: int = REPAIRS) -> None:
        """Describe what is to be made.

        Args:
            type_: A dataclass, a msgspec struct, a pydantic model, a `TypedDict`, or anything else with type hints.
            mode: How the model is held to it; `None` for the best way that the model has.
            repairs: How often a model that answers something else is told so.
        """
        check.one_of("Output", "mode", mode, (None, *get_args(OutputMode)))
        check.whole_number("Output", "repairs", repairs)
        self._type = type_
        self.mode: OutputMode | None = mode
        self.repairs = repairs
        schema = for_type(type_)
        self._boxed = schema.get("type") != "object"
        name = getattr(type_, "__name__", "") or "output"
        text = str(schema.get("description", ""))
        self.spec = OutputSpec(name, _boxed(schema) if self._boxed else schema, text)
        """What a provider is told."""

    def value_of(self, found: Any) -> T:
        """What came, out of JSON, as a value of the type. Raises `Invalid` with every problem."""
        if not self._boxed:
            return cast("T", convert(found, self._type))
        if not isinstance(found, dict) or _BOX not in found:
            raise Invalid([Problem(_BOX, "is missing")])
        return cast("T", convert(cast("dict[str, Any]", found)[_BOX], self._type))

    def unboxed(self, found: Any) -> Any:
        """What came so far, as the caller knows it."""
        return cast("dict[str, Any]", found).get(_BOX) if self._boxed and isinstance(found, dict) else found

    def read(self, text: str) -> T:
        """The value in the words of a model. Raises `Invalid`."""
        try:
            found = msgspec.json.decode(_bare(text))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Invalid([Problem("", f"the answer is not JSON ({error})")]) from None
        return self.value_of(found)

    def __repr__(self) -> str:
        return f"Output({self.spec.name})"


def output_of(given: Any) -> Output[Any] | None:
    """What callers pass as `output`, as an `Output`."""
    if given is None:
        return None
    if isinstance(given, Output):
        return given  # pyright: ignore[reportUnknownVariableType] # of whatever type it is
    if not isinstance(given, type) and not get_args(given):
        raise ConfigError(f"output={given!r} is no type: give a class such as a dataclass, or an Output(…)")
    return Output(cast("type[Any]", given))


def _boxed(schema: Mapping[str, Any]) -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    inner = hoisted(dict(schema), definitions)
    boxed: dict[str, Any] = {"type": "object", "properties": {_BOX: inner}, "required": [_BOX]}
    return {**boxed, "$defs": definitions} if definitions else boxed


def _bare(text: str) -> str:
    """JSON as models wrap it up when they are only asked for it, perhaps with their thinking in front of it."""
    plain = text.strip()
    while plain.startswith("<think>"):
        plain = plain.partition("</think>")[2].lstrip()
    if plain.startswith("```") and plain.endswith("```"):
        return plain[3:-3].removeprefix("json").strip()
    return plain


# -- how a run is held to it -------------------------------------------------------------------------------------------


def instructions_for(output: Output[Any]) -> str:
    """What a model is told that can only be asked."""
    schema = msgspec.json.encode(output.spec.schema).decode()
    return f"Answer with JSON alone, without any other words, according to this JSON Schema:\n{schema}"


def tool_for(output: Output[Any]) -> Tool[..., Any]:
    """The tool that takes the answer, and ends the run with it."""

    async def take(arguments: Mapping[str, Any]) -> str:
        try:
            output.value_of(dict(arguments))
        except Invalid as error:
            raise ToolError(f"this is not what was asked for: {error}") from None
        return "taken"

    about = output.spec.description or "The answer, in the form in which it is wanted."
    description = f"{about} Call this alone, once, when you are done: it ends the work."
    return tool_from_schema(TOOL, description, output.spec.schema, take, effect="read", terminate=True)


def acceptance(output: Output[Any], mode: OutputMode) -> Accept:
    """Whether a reply is what was asked for; if so, the run has its output."""

    def accept(run: Run, reply: Message) -> Accepted | Again:
        try:
            run.output = output.read(reply.text)
        except Invalid as error:
            if _repairs_in(run) >= output.repairs:
                name = output.spec.name
                raise InvalidOutput(f"the model did not answer with a {name} that is valid: {error}") from None
            wanted = f"Call the tool {TOOL} with your answer." if mode == "tool" else "Answer with the JSON alone."
            return Again(f"Your answer does not have the form that is wanted: {error}. {wanted}", ORIGIN)
        return Accepted()

    return accept


def _repairs_in(run: Run) -> int:
    """Counted in the transcript, so that a crash does not give a model more of them."""
    return sum([each.origin == ORIGIN for each in run.messages[run.state.first :]])


class Held(Struct, frozen=True):
    """What a run is made of, once it is held to a type."""

    toolbox: Toolbox
    instructions: str
    accept: Sequence[Accept]
    spec: OutputSpec | None = None
    """What the provider is told, when it can hold the model to it."""


def applied(output: Output[Any] | None, info: ModelInfo, plain: Held) -> Held:
    """Hold a run to a type, in the best way that its model has."""
    if output is None:
        return plain
    mode = output.mode or info.output
    accept = (acceptance(output, mode), *plain.accept)
    if mode == "native":
        return Held(plain.toolbox, plain.instructions, accept, output.spec)
    if mode == "tool":
        return Held(plain.toolbox.plus([tool_for(output)]), plain.instructions, accept)
    words = [part for part in (plain.instructions, instructions_for(output)) if part]
    return Held(plain.toolbox, "\n\n".join(words), accept)


def held(engine: Engine, output: Output[Any]) -> Engine:
    """An engine whose runs are done when the tool that takes the answer has been called."""

    async def run_held(run: Run) -> Outcome[Any]:
        outcome = await engine(run)
        call = _taken(run.messages) if outcome.reason == "terminated" else None
        if call is None:
            return outcome
        run.output = output.value_of(msgspec.json.decode(call.arguments or "{}"))
        return run.outcome("done")

    return run_held


def made_in(messages: Sequence[Message], output: Output[T]) -> T:
    """The value that a run has made which is over, from what was said in it. Raises `Invalid`."""
    call = _taken(messages)
    if call is not None:
        return output.value_of(msgspec.json.decode(call.arguments or "{}"))
    return output.read(messages[-1].text if messages else "")


def _taken(messages: Sequence[Message]) -> ToolCall | None:
    """The call by which the model gave its answer, if it was the last thing that happened."""
    if len(messages) < 2:  # noqa: PLR2004 - a call and its result
        return None
    reply, results = messages[-2:]
    fine = {each.call_id for each in results.tool_results if each.status is Status.OK}
    return next((each for each in reply.tool_calls if each.name == TOOL and each.call_id in fine), None)
