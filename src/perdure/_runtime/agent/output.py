"""Structured output: a run that has to return a value of a type instead of free text.

The type is enforced in the best way that the model supports: by its provider (`native`), by a tool that takes the
answer as arguments (`tool`), or by instructions (`prompted`). In every mode the answer is validated here, and a reply
that does not fit is returned to the model with every problem listed, a limited number of times.
"""

import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_args

import msgspec
from msgspec import Struct

from perdure._core.model.protocol import ModelInfo, OutputMode, OutputSpec
from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.spec import Accepted, Engine, OutputValidator, Retry, call_engine, get_engine_name
from perdure._core.schema.definitions import hoist_definitions
from perdure._core.schema.parameters import check_json_schema, check_value, convert_value, json_schema_for_type
from perdure._core.schema.problems import Invalid, Problem
from perdure._core.tools.tool import Tool, tool_from_schema
from perdure._core.tools.toolbox import Toolbox
from perdure._core.values import checks
from perdure._core.values.error import ConfigError, InvalidOutput, ToolError
from perdure._core.values.message import Message, Status, ToolCall

if TYPE_CHECKING:
    from typing_extensions import TypeForm
    from typing_extensions import TypeVar as TypeVarWithDefault

    T = TypeVarWithDefault("T", default=Any)
else:
    T = TypeVar("T")

ANSWER_TOOL = "final_answer"
"""The name of the tool that takes the answer in `tool` mode."""
REPAIR_ORIGIN = "output"
"""The origin of messages that ask the model to repair an invalid answer."""
WITH_ANSWER = frozenset({"done", "limit"})
"""Statuses of runs that can have an answer; at a limit, it may be one from a part of the work."""
DEFAULT_REPAIRS = 2
"""The default number of times that a model is asked to repair its answer."""

_BOX_KEY = "value"
"""The key under which a value that is not an object is put: providers require an object."""


class Output(Generic[T]):
    """The type of value that a run has to return, and how the model is made to produce it.

    `run(output=Plan)` is short for `run(output=Output(Plan))`.
    """

    __slots__ = ("_boxed", "_type", "mode", "repairs", "spec")

    def __init__(self, type_: "TypeForm[T]", *, mode: OutputMode | None = None, repairs: int = DEFAULT_REPAIRS) -> None:
        """Describe the value that a run has to return, and how often the model may repair an invalid one.

        Args:
            type_: A dataclass, a msgspec struct, a pydantic model, a `TypedDict`, or anything else with type hints.
            mode: How the type is enforced; `None` for the best way that the model supports.
            repairs: How often the model may repair an answer that does not fit.
        """
        checks.require_one_of("Output", "mode", mode, (None, *get_args(OutputMode)))
        checks.require_int("Output", "repairs", repairs)
        self._type = type_
        self.mode: OutputMode | None = mode
        self.repairs = repairs
        schema = json_schema_for_type(type_)
        self._boxed = schema.get("type") != "object"
        name = getattr(type_, "__name__", "") or "output"
        text = str(schema.get("description", ""))
        self.spec = OutputSpec(name, _box_schema(schema) if self._boxed else schema, text)
        """The name, schema and description of the type, as sent to a provider."""

    @classmethod
    def from_schema(
        cls,
        schema: Mapping[str, Any],
        *,
        name: str = "",
        mode: OutputMode | None = None,
        repairs: int = DEFAULT_REPAIRS,
    ) -> "Output[Any]":
        """Describe the value that a run has to return by a JSON Schema: `outcome.value` is JSON that fits it.

        `run(output={"type": "object", …})` is short for `run(output=Output.from_schema({…}))`. `name` is what the
        provider is told; by default the schema's title. Raises `ConfigError` for a schema that is not valid.
        """
        checks.require_one_of("Output", "mode", mode, (None, *get_args(OutputMode)))
        checks.require_int("Output", "repairs", repairs)
        checks.require_text("Output.from_schema", "name", name)
        plain = check_json_schema(dict(schema))
        if "properties" in plain:
            plain.setdefault("type", "object")
        boxed = plain.get("type") != "object"
        title = name or str(plain.get("title", "")) or "output"
        return SchemaOutput(
            OutputSettingsRecord(
                title, _box_schema(plain) if boxed else plain, str(plain.get("description", "")), mode, repairs, boxed
            )
        )

    @property
    def record(self) -> "OutputSettingsRecord":
        """The description that is stored with a run, so that a process without the type can continue the run."""
        spec = self.spec
        return OutputSettingsRecord(spec.name, spec.schema, spec.description, self.mode, self.repairs, self._boxed)

    def convert_answer(self, data: Any) -> T:
        """Convert parsed JSON of an answer to a value of the type. Raises `Invalid` with every problem."""
        if not self._boxed:
            return cast("T", convert_value(data, self._type))
        if not isinstance(data, dict) or _BOX_KEY not in data:
            raise Invalid([Problem(_BOX_KEY, "is missing")])
        return cast("T", convert_value(cast("dict[str, Any]", data)[_BOX_KEY], self._type))

    def unbox_partial_answer(self, data: Any) -> Any:
        """Return the value of an incomplete answer without the wrapper object that lists and plain values need."""
        return cast("dict[str, Any]", data).get(_BOX_KEY) if self._boxed and isinstance(data, dict) else data

    def parse_answer(self, text: str) -> T:
        """Parse the text of a reply as a value of the type. Raises `Invalid` with every problem."""
        try:
            found = msgspec.json.decode(_strip_json_wrapping(text))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Invalid([Problem("", f"the answer is not JSON ({error})")]) from None
        return self.convert_answer(found)

    def __repr__(self) -> str:
        return f"Output({self.spec.name})"


class OutputSettingsRecord(Struct, frozen=True, omit_defaults=True):
    """The output settings of a run as they are stored in the log: name, JSON Schema and mode, not the Python type."""

    name: str
    schema: Mapping[str, Any]
    """The JSON Schema of an answer."""
    description: str = ""
    mode: OutputMode | None = None
    repairs: int = DEFAULT_REPAIRS
    boxed: bool = False
    """True if the value is put into an object, because it is none itself."""


class SchemaOutput(Output[Any]):
    """An output that is described by a JSON Schema instead of a Python type; its values are JSON."""

    __slots__ = ()

    def __init__(self, record: OutputSettingsRecord) -> None:
        self._type = object
        self._boxed = record.boxed
        self.mode = record.mode
        self.repairs = record.repairs
        self.spec = OutputSpec(record.name, record.schema, record.description)

    def convert_answer(self, data: Any) -> Any:
        """Return the parsed JSON of an answer. Raises `Invalid`, with its problems, unless it fits the schema."""
        check_value(data, dict(self.spec.schema))
        return data[_BOX_KEY] if self._boxed else data


def to_output(given: Any) -> Output[Any] | None:
    """Convert a run's `output` argument (a type, an `Output` or None) to an `Output` or None."""
    if given is None:
        return None
    if isinstance(given, Output):
        return given  # pyright: ignore[reportUnknownVariableType] # its type argument is unknown
    if isinstance(given, Mapping):
        return Output.from_schema(cast("Mapping[str, Any]", given))
    if not isinstance(given, type) and not get_args(given):
        raise ConfigError(
            f"output={given!r} is not a type: give a class such as a dataclass, a JSON Schema, or an Output(…)"
        )
    return Output(cast("type[Any]", given))


def _box_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Wrap the schema of a value that is no object in the schema of an object with one property."""
    definitions: dict[str, Any] = {}
    inner = hoist_definitions(dict(schema), definitions)
    boxed: dict[str, Any] = {"type": "object", "properties": {_BOX_KEY: inner}, "required": [_BOX_KEY]}
    return {**boxed, "$defs": definitions} if definitions else boxed


def _strip_json_wrapping(text: str) -> str:
    """Strip leading `<think>` blocks and a code fence, which models put around JSON in `prompted` mode."""
    plain = text.strip()
    while plain.startswith("<think>"):
        plain = plain.partition("</think>")[2].lstrip()
    if plain.startswith("```") and plain.endswith("```"):
        return plain[3:-3].removeprefix("json").strip()
    return plain


# -- how the type is enforced ------------------------------------------------------------------------------------------


def build_output_instructions(output: Output[Any]) -> str:
    """Return the instructions that ask a model for JSON of this schema, for `prompted` mode."""
    schema = msgspec.json.encode(output.spec.schema).decode()
    return f"Answer with JSON alone, without any other words, according to this JSON Schema:\n{schema}"


def build_answer_tool(output: Output[Any]) -> Tool[..., Any]:
    """Build the tool by which the model gives its structured answer, and which ends the run."""

    async def take(arguments: Mapping[str, Any]) -> str:
        try:
            output.convert_answer(dict(arguments))
        except Invalid as error:
            raise ToolError(f"this is not what was asked for: {error}") from None
        return "taken"

    about = output.spec.description or "The answer, in the form in which it is wanted."
    description = f"{about} Call this alone, once, when you are done: it ends the work."
    answer = tool_from_schema(ANSWER_TOOL, description, output.spec.schema, take, effect="read", terminate=True)
    return msgspec.structs.replace(answer, is_of_the_runtime=True)


def make_output_validator(output: Output[Any], mode: OutputMode) -> OutputValidator:
    """Make an output validator that parses the reply as the run's output, or asks the model to repair it."""

    def accept(run: Run, reply: Message) -> Accepted | Retry:
        try:
            run.output = output.parse_answer(reply.text)
        except Invalid as error:
            if _count_repairs(run) >= output.repairs:
                name = output.spec.name
                raise InvalidOutput(f"the model did not answer with a valid {name}: {error}") from None
            advice = (
                f"Call the tool {ANSWER_TOOL} with your answer." if mode == "tool" else "Answer with the JSON alone."
            )
            return Retry(f"Your answer does not have the form that is wanted: {error}. {advice}", REPAIR_ORIGIN)
        return Accepted()

    return accept


def _count_repairs(run: Run) -> int:
    """Return how often the model was asked in this run to repair its answer.

    They are counted in the messages, so that a crash does not allow more of them.
    """
    return sum([each.origin == REPAIR_ORIGIN for each in run.messages[run.state.first_message_index :]])


class OutputTypeSettings(Struct, frozen=True):
    """The settings of a run that depend on its output type: tools, instructions, output validators and schema."""

    toolbox: Toolbox
    instructions: str
    accept: Sequence[OutputValidator]
    spec: OutputSpec | None = None
    """The output schema for the provider, in `native` mode."""
    answer_tool: str = ""
    """Name of the tool that takes the answer, in `tool` mode."""


def add_output_type_settings(
    output: Output[Any] | None, model_info: ModelInfo, plan: OutputTypeSettings
) -> OutputTypeSettings:
    """Add to a run's settings what its output type needs: a schema, an answer tool or instructions.

    Which of them is added depends on the output's `mode`, or else on what the model supports best. A validator is
    always added.
    """
    if output is None:
        return plan
    mode = output.mode or model_info.output
    accept = (make_output_validator(output, mode), *plan.accept)
    if mode == "native":
        return OutputTypeSettings(plan.toolbox, plan.instructions, accept, output.spec)
    if mode == "tool":
        tools = plan.toolbox.with_tools([build_answer_tool(output)])
        return OutputTypeSettings(tools, plan.instructions, accept, answer_tool=ANSWER_TOOL)
    texts = [part for part in (plan.instructions, build_output_instructions(output)) if part]
    return OutputTypeSettings(plan.toolbox, "\n\n".join(texts), accept)


def end_run_on_answer(engine: Engine, output: Output[Any]) -> Engine:
    """Return an engine that ends a run as done, with its output, once the model has called the answer tool."""

    @functools.wraps(engine)
    async def run_to_answer(run: Run) -> Outcome[Any]:
        outcome = await call_engine(engine, run)
        if outcome.status in WITH_ANSWER and outcome.output is None:
            with suppress(Invalid):  # it may have ended without an answer, or an engine of one's own with anything
                run.output = parse_run_output(outcome.messages, output)
            return msgspec.structs.replace(outcome, output=run.output)
        if outcome.reason != "terminated" or (call := _find_answer_call(run.messages)) is None:
            return outcome
        run.output = output.convert_answer(msgspec.json.decode(call.arguments or "{}"))
        return run.outcome("done")

    run_to_answer.__name__ = get_engine_name(engine)  # which errors show
    return run_to_answer


def parse_run_output(messages: Sequence[Message], output: Output[T]) -> T:
    """Return the output of a finished run, parsed from its messages. Raises `Invalid`."""
    call = _find_answer_call(messages)
    if call is not None:
        return output.convert_answer(msgspec.json.decode(call.arguments or "{}"))
    has_answer = bool(messages) and messages[-1].role == "assistant"
    return output.parse_answer(messages[-1].text if has_answer else "")


def _find_answer_call(messages: Sequence[Message]) -> ToolCall | None:
    """Return the successful call of the answer tool, if the messages end with it; else None."""
    if len(messages) < 2:  # noqa: PLR2004 - a call and its result
        return None
    reply, results = messages[-2:]
    fine = {each.call_id for each in results.tool_results if each.status is Status.OK}
    return next((each for each in reply.tool_calls if each.name == ANSWER_TOOL and each.call_id in fine), None)
