"""Runs that have to make a value of a type."""

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypedDict, get_args

import msgspec
import pydantic
import pytest

from perdure import (
    Agent,
    ConfigError,
    Invalid,
    InvalidOutput,
    Limits,
    Message,
    Outcome,
    Output,
    Session,
    Status,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    UsageError,
    assistant,
    tool,
    tool_message,
    user,
)
from perdure._runtime.agent.output import (
    ANSWER_TOOL,
    OutputSettingsRecord,
    build_answer_tool,
    end_run_on_answer,
    parse_run_output,
)
from perdure.engines import Run, react
from perdure.events import MessageAdded, RunStarted
from perdure.models import ModelInfo, OutputMode
from perdure.stores import MemoryStore
from perdure.testing import FakeClock, Reply, ScriptedModel, call, calls
from tests.doubles import crashed

pytestmark = pytest.mark.resumed


@dataclass
class Plan:
    """A plan for a day."""

    title: str
    steps: list[str]


class Struct(msgspec.Struct):
    title: str


class Pydantic(pydantic.BaseModel):
    title: str


class Typed(TypedDict):
    title: str


WHOLE = '{"title": "Oslo", "steps": ["pack"]}'


def model(*script: Any, mode: OutputMode = "native") -> ScriptedModel:
    made = ScriptedModel(*script)
    made.info = ModelInfo("scripted", "scripted", output=mode)
    return made


async def test_a_provider_that_can_hold_its_model_to_a_schema_is_told_it() -> None:
    asked = model(WHOLE)
    outcome = await Agent(asked).run("Plan.", output=Plan)
    assert outcome.value == Plan("Oslo", ["pack"])
    spec = asked.requests[0].output
    assert spec is not None
    assert (spec.name, spec.description) == ("Plan", "A plan for a day.")
    assert spec.schema["required"] == ["title", "steps"]


async def test_other_models_get_a_tool_that_takes_the_answer() -> None:
    asked = model(call(ANSWER_TOOL, title="Oslo", steps=["pack"]), mode="tool")
    outcome = await Agent(asked).run("Plan.", output=Plan)
    assert (outcome.status, outcome.reason) == ("done", "")
    assert outcome.value == Plan("Oslo", ["pack"])
    assert [each.name for each in asked.requests[0].tools] == [ANSWER_TOOL]
    assert asked.requests[0].output is None
    assert [each.text for each in outcome.messages[-1].tool_results] == ["taken"]


async def test_models_without_tools_are_asked_in_words() -> None:
    asked = model(f"```json\n{WHOLE}\n```", mode="prompted")
    outcome = await Agent(asked, instructions="Be brief.").run("Plan.", output=Plan)
    assert outcome.value == Plan("Oslo", ["pack"])
    assert asked.requests[0].instructions.startswith("Be brief.\n\nAnswer with JSON alone")
    assert '"steps"' in asked.requests[0].instructions


@pytest.mark.parametrize(
    "text", [f"<think>What now? {{}}</think>\n\n{WHOLE}", f"<think>a</think><think>b</think>```json\n{WHOLE}```"]
)
def test_thinking_in_front_of_the_answer_is_no_part_of_it(text: str) -> None:
    assert Output(Plan).parse_answer(text) == Plan("Oslo", ["pack"])


@pytest.mark.parametrize("text", ["[" * 100_000, "<think>and no answer", ""])
def test_what_cannot_be_read_is_not_what_was_asked_for(text: str) -> None:
    with pytest.raises(Invalid, match="is not JSON"):
        Output(Plan).parse_answer(text)


async def test_the_way_can_be_chosen() -> None:
    asked = model(call(ANSWER_TOOL, title="Oslo", steps=[]))
    outcome = await Agent(asked).run("Plan.", output=Output(Plan, mode="tool"))
    assert outcome.value == Plan("Oslo", [])


@pytest.mark.parametrize("wanted", [Struct, Pydantic, Typed])
async def test_types_of_every_kind_are_made(wanted: type) -> None:
    outcome: Outcome[Any] = await Agent(model('{"title": "Oslo"}')).run("Plan.", output=wanted)
    assert outcome.value == ({"title": "Oslo"} if wanted is Typed else wanted(title="Oslo"))


@pytest.mark.parametrize(
    ("wanted", "text", "value"),
    [(int, '{"value": 3}', 3), (list[Plan], f'{{"value": [{WHOLE}]}}', [Plan("Oslo", ["pack"])])],
)
async def test_what_is_no_object_travels_in_one(wanted: Any, text: str, value: Any) -> None:
    asked = model(text)
    outcome = await Agent(asked).run("Plan.", output=wanted)
    assert outcome.value == value
    spec = asked.requests[0].output
    assert spec is not None
    assert spec.schema["type"] == "object"


async def test_a_union_can_be_asked_for() -> None:
    outcome = await Agent(model('{"value": "x"}')).run("Plan.", output=int | str)
    assert outcome.value == "x"


async def test_an_answer_that_does_not_fit_goes_back_with_every_problem() -> None:
    asked = model('{"steps": 1}', WHOLE)
    outcome = await Agent(asked).run("Plan.", output=Plan)
    assert outcome.value == Plan("Oslo", ["pack"])
    told = outcome.messages[2]
    assert told.origin == "output"
    assert "title" in told.text
    assert "steps" in told.text


@pytest.mark.parametrize("answer", ['{"other": 1}', "[1]", "5", '"value"', "null"])
async def test_a_value_that_is_not_in_the_object_in_which_it_travels_goes_back(answer: str) -> None:
    outcome = await Agent(model(answer, '{"value": [1]}')).run("Plan.", output=list[int])
    assert outcome.value == [1]
    assert "value: is missing" in outcome.messages[2].text


async def test_a_model_that_talks_instead_of_calling_is_reminded_of_the_tool() -> None:
    asked = model("Here is my plan!", call(ANSWER_TOOL, title="Oslo", steps=[]), mode="tool")
    outcome = await Agent(asked).run("Plan.", output=Plan)
    assert outcome.value == Plan("Oslo", [])
    assert f"Call the tool {ANSWER_TOOL}" in outcome.messages[2].text


async def test_arguments_that_do_not_fit_are_an_error_result() -> None:
    asked = model(
        call(ANSWER_TOOL, '{"title": "Oslo", "steps": "pack"}'), call(ANSWER_TOOL, title="Oslo", steps=[]), mode="tool"
    )
    outcome = await Agent(asked).run("Plan.", output=Plan)
    assert outcome.value == Plan("Oslo", [])
    assert outcome.messages[2].tool_results[0].is_error


async def test_what_a_schema_cannot_say_is_checked_when_the_tool_is_called() -> None:
    class Even(pydantic.BaseModel):
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def is_even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("must be even")
            return value

    asked = model(call(ANSWER_TOOL, number=3), call(ANSWER_TOOL, number=4), mode="tool")
    outcome = await Agent(asked).run("A number.", output=Even)
    assert outcome.value == Even(number=4)
    assert "must be even" in outcome.messages[2].tool_results[0].text


async def test_a_model_that_never_gets_there_fails_with_its_work_kept() -> None:
    outcome = await Agent(model("no", "still no", "never")).run("Plan.", output=Plan)
    assert (outcome.status, outcome.reason) == ("failed", "InvalidOutput")
    assert outcome.text == "never"
    with pytest.raises(InvalidOutput, match="not answer with a valid Plan"):
        _ = outcome.value


async def test_how_often_it_is_told_so_can_be_chosen() -> None:
    asked = model("no")
    outcome = await Agent(asked).run("Plan.", output=Output(Plan, repairs=0))
    assert outcome.reason == "InvalidOutput"
    assert len(asked.requests) == 1


async def test_tools_are_used_before_the_answer_is_given() -> None:
    @tool
    async def look() -> str:
        """Looks."""
        return "rain"

    asked = model(
        call("look"),
        calls(call("look"), call(ANSWER_TOOL, title="a", steps=[])),
        call(ANSWER_TOOL, title="b", steps=[]),
        mode="tool",
    )
    outcome = await Agent(asked, tools=[look]).run("Plan.", output=Plan)
    assert outcome.value == Plan("b", [])  # an answer given beside other calls has not seen their results


async def test_an_answer_that_was_cut_off_is_no_output() -> None:
    outcome = await Agent(model(Reply('{"title"', stop=StopReason.LENGTH))).run("Plan.", output=Plan)
    assert (outcome.status, outcome.reason, outcome.output) == ("stopped", "length", None)
    with pytest.raises(UsageError, match=r"no output .it ended as 'stopped', length"):
        _ = outcome.value


async def test_a_run_that_stops_otherwise_keeps_its_own_reason() -> None:
    asked = model(call(ANSWER_TOOL, "{"), mode="tool")
    outcome = await Agent(asked, limits=Limits(max_turns=1)).run("Plan.", output=Plan)
    assert (outcome.status, outcome.reason) == ("limit", "max_turns")


async def test_a_session_is_resumed_with_the_type_given_again() -> None:
    agent = Agent(model(WHOLE, WHOLE))
    session = agent.session("plans")
    outcome = await session.run("Plan.", output=Plan)
    assert outcome.value.steps == ["pack"]
    await session.aclose()


# -- a run that a crash cut off ----------------------------------------------------------------------------------------


async def cut_off(answer: Any, wanted: Any, mode: OutputMode = "native", *then: Any) -> Session:
    """The session of a run whose process died after it had asked the model."""
    agent = Agent(model(answer, *then, mode=mode), clock=FakeClock(auto=True))
    session = agent.session("whole")
    await session.run("Plan.", output=wanted)
    return await session.fork("cut", at=3)


async def take_up(session: Session, way: str, **options: Any) -> Outcome[Any]:
    if way == "attend":
        async with aclosing(session.attend(**options)) as outcomes:
            return await anext(outcomes)
    outcome = await (session.wake(**options) if way == "wake" else session.resume(**options))
    assert outcome is not None
    return outcome


ANSWERS: dict[OutputMode, Any] = {
    "native": WHOLE,
    "tool": call(ANSWER_TOOL, title="Oslo", steps=["pack"]),
    "prompted": WHOLE,
}


@pytest.mark.parametrize("way", ["wake", "attend", "resume"])
@pytest.mark.parametrize("mode", get_args(OutputMode))
async def test_a_run_that_was_cut_off_is_taken_up_without_its_type(mode: OutputMode, way: str) -> None:
    session = await cut_off(ANSWERS[mode], Plan, mode, ANSWERS[mode])
    outcome = await take_up(session, way)
    assert (outcome.status, outcome.output) == ("done", {"title": "Oslo", "steps": ["pack"]})


@pytest.mark.parametrize("way", ["wake", "attend", "resume"])
async def test_a_run_that_was_cut_off_is_taken_up_with_the_type_of_the_caller(way: str) -> None:
    session = await cut_off(WHOLE, Plan, "native", WHOLE)
    assert (await take_up(session, way, output=Plan)).value == Plan("Oslo", ["pack"])


async def test_what_is_no_object_is_taken_out_of_one_also_without_its_type() -> None:
    session = await cut_off('{"value": [1, 2]}', list[int], "native", '{"value": [1, 2]}')
    assert (await take_up(session, "wake")).output == [1, 2]


async def test_what_does_not_fit_the_stored_schema_goes_back_as_often_as_it_was_to() -> None:
    wrong = '{"title": 5, "steps": "none"}'
    session = await cut_off(WHOLE, Output(Plan, repairs=1), "native", wrong, wrong)
    outcome = await take_up(session, "wake")
    assert (outcome.status, type(outcome.error)) == ("failed", InvalidOutput)
    feedback = outcome.messages[-2].text
    assert "title" in feedback
    assert "steps" in feedback


async def test_the_output_is_seen_while_it_is_written() -> None:
    stream = Agent(model(WHOLE)).session().stream("Plan.", output=Plan, backpressure=True)
    seen = [each async for each in stream.partials()]
    assert seen[-1] == {"title": "Oslo", "steps": ["pack"]}
    assert all(set(each) <= {"title", "steps"} for each in seen)
    assert (await stream.outcome()).value == Plan("Oslo", ["pack"])


async def test_the_answer_to_a_tool_is_seen_too_and_other_calls_are_not() -> None:
    @tool
    async def look(at: str) -> str:
        """Looks."""
        return at

    asked = model("hm", call("look", at="sky"), call(ANSWER_TOOL, value=[1, 2]), mode="tool")
    stream = Agent(asked, tools=[look]).session().stream("Plan.", output=list[int])
    seen = [each async for each in stream.partials()]
    assert seen[-1] == [1, 2]
    assert "sky" not in str(seen)


async def test_a_run_without_an_output_has_no_partials() -> None:
    with pytest.raises(UsageError, match="has no output type: give one"):
        _ = [each async for each in Agent(model("a")).stream("Go.").partials()]


@pytest.mark.parametrize("wrong", ["Plan", 3, Plan("a", [])])
async def test_what_is_no_type_is_refused_before_anything_is_sent(wrong: Any) -> None:
    asked = model("a")
    with pytest.raises(ConfigError, match="is not a type"):
        await Agent(asked).run("Go.", output=wrong)
    assert not asked.requests


def test_an_output_checks_what_it_is_given() -> None:
    with pytest.raises(ConfigError, match="mode"):
        Output(Plan, mode="magic")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="repairs"):
        Output(Plan, repairs=-1)
    assert repr(Output(Plan)) == "Output(Plan)"


# -- a raw JSON Schema -------------------------------------------------------------------------------------------------

BOAT = {
    "title": "Boat",
    "type": "object",
    "properties": {"name": {"type": "string"}, "metres": {"type": "number", "minimum": 1}},
    "required": ["name"],
}


@pytest.mark.parametrize("mode", ["native", "tool", "prompted"])
async def test_an_output_can_be_a_json_schema(mode):
    text, given = '{"name": "Ada", "metres": 9}', {"name": "Ada", "metres": 9}
    reply = call("final_answer", **given) if mode == "tool" else text
    made = model(reply, mode=mode)
    outcome = await Agent(made).run("A boat?", output=BOAT)
    assert outcome.value == given
    if mode == "native":
        spec = made.requests[0].output
        assert spec is not None
        assert (spec.name, spec.schema) == ("Boat", BOAT)


async def test_an_answer_that_does_not_fit_the_schema_is_repaired():
    made = model('{"metres": 0}', '{"name": "Ada"}', mode="prompted")
    outcome = await Agent(made).run("A boat?", output=BOAT)
    assert outcome.value == {"name": "Ada"}
    told = made.requests[1].messages[-1].text
    assert "name" in told
    assert "metres" in told


async def test_a_schema_of_a_plain_value_is_put_into_an_object():
    made = model('{"value": [1, 2]}', mode="native")
    schema = {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}
    outcome = await Agent(made).run("Numbers?", output=Output.from_schema(schema, name="numbers", repairs=0))
    assert outcome.value == [1, 2]
    assert made.requests[0].output is not None
    assert made.requests[0].output.name == "numbers"


async def test_a_run_with_a_schema_is_resumed_without_it():
    store = MemoryStore()
    record = Output.from_schema(BOAT).record
    started = RunStarted(options={"output": msgspec.to_builtins(record)}, run_id="r")
    await crashed(store, "s", started, MessageAdded(user("A boat?"), run_id="r"))
    outcome = await Agent(model('{"name": "Ada"}', mode="prompted"), store=store).session("s").resume()
    assert outcome.value == {"name": "Ada"}


def test_properties_are_those_of_an_object():
    assert Output.from_schema({"properties": {"a": {}}}).spec.schema["type"] == "object"
    assert Output.from_schema({"properties": {"a": {}}, "type": "object"}).record.boxed is False
    assert Output.from_schema({"enum": [1, 2]}).record.boxed is True


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "no such type"}, "not a JSON Schema that can be used"),
        ({"$ref": "https://example.com/boat.json"}, "references are not fetched"),
        ({"enum": [object()]}, "no JSON object"),
    ],
)
async def test_a_schema_that_cannot_be_used_is_refused(schema, told):
    with pytest.raises(ConfigError, match=told):
        await Agent(ScriptedModel("Never.")).run("A boat?", output=schema)
    with pytest.raises(ConfigError, match=r"Output\.from_schema\(name=5\)"):
        Output.from_schema(BOAT, name=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "magic"}, "Output(mode='magic'): use None, 'native', 'tool', 'prompted'"),
        ({"repairs": -1}, "Output(repairs=-1): give a whole number, 0 or more"),
        ({"name": 5}, "Output.from_schema(name=5): give text"),
    ],
)
def test_an_output_by_a_schema_checks_what_it_is_given(options: Any, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        Output.from_schema(BOAT, **options)
    assert str(error.value) == told


def test_what_is_stored_of_an_output_describes_it_whole() -> None:
    plain = {"properties": {"a": {"type": "integer"}}, "type": "object"}
    given = Output.from_schema({"properties": {"a": {"type": "integer"}}}, mode="tool", repairs=0)
    assert given.record == OutputSettingsRecord("output", plain, mode="tool", repairs=0, boxed=False)
    number = {"type": "integer", "title": "Number", "description": "Any."}
    boxed = {"type": "object", "properties": {"value": number}, "required": ["value"]}
    assert Output.from_schema(number).record == OutputSettingsRecord("Number", boxed, "Any.", boxed=True)
    assert Output.from_schema(number, name="n").record == OutputSettingsRecord("n", boxed, "Any.", boxed=True)


@pytest.mark.parametrize("text", [f"```json\n{WHOLE}", f"{WHOLE}```", f"```{WHOLE}``.", f"No:{WHOLE}```"])
def test_half_a_code_fence_is_not_taken_off(text: str) -> None:
    with pytest.raises(Invalid, match="the answer is not JSON"):
        Output(Plan).parse_answer(text)
    assert Output(Plan).parse_answer(f"```{WHOLE}```") == Plan("Oslo", ["pack"])


def test_the_tool_for_the_answer_says_what_it_is_for() -> None:
    end = "Call this alone, once, when you are done: it ends the work."
    assert build_answer_tool(Output(Plan)).description == f"A plan for a day. {end}"
    bare = build_answer_tool(Output.from_schema({"type": "object"}))
    assert bare.description == f"The answer, in the form in which it is wanted. {end}"


def test_the_output_of_a_finished_run_is_its_successful_call_or_its_last_words() -> None:
    output = Output(Plan)
    reply = assistant([ToolCall("c1", "look"), ToolCall("c2", ANSWER_TOOL, WHOLE)])

    def results(status: Status) -> Message:
        return tool_message([ToolResult("c1", "look"), ToolResult("c2", ANSWER_TOOL, (Text("x"),), status=status)])

    assert parse_run_output([reply, results(Status.OK)], output) == Plan("Oslo", ["pack"])
    assert parse_run_output([user("Go"), reply, results(Status.OK)], output) == Plan("Oslo", ["pack"])
    assert parse_run_output([assistant(WHOLE)], output) == Plan("Oslo", ["pack"])
    for messages in ([reply, results(Status.ERROR)], [reply], []):
        with pytest.raises(Invalid, match="the answer is not JSON"):
            parse_run_output(messages, output)


def test_an_engine_that_ends_with_an_answer_keeps_its_name() -> None:
    class Thinker:
        async def __call__(self, run: Run) -> Outcome[Any]:
            return run.outcome("done")

    assert end_run_on_answer(Thinker(), Output(Plan)).__name__ == "Thinker"
    assert end_run_on_answer(react, Output(Plan)).__name__ == "react"
