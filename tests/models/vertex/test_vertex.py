"""Gemini and Claude on Vertex AI: paths, bodies, and recorded traffic."""

from typing import Any

import msgspec
import pytest

from perdure import Agent, Message, Settings, StopReason, Text, ToolCall, ToolResult, tool, user
from perdure._models.wires.vertex import WIRE, is_claude
from perdure.events import ReplyFinished
from perdure.models import EncodingMemo, Profile, Request, assemble_reply, open_model
from tests.models.canned import CannedTransport
from tests.models.gemini.test_decode import as_events, chunk
from tests.wire.recordings import Exchange, each_exchange, recordings

GEMINI = Profile(provider="vertex", model="gemini-2.5-flash", schema="gemini", dialect="vertex")
CLAUDE = Profile(provider="vertex", model="claude-sonnet-4-5@20250929", schema="anthropic", cache="none")
BASE = "https://aiplatform.googleapis.com/v1/projects/p/locations/global"


@pytest.fixture(autouse=True)
def _project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    for name in ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION", "VERTEXAI_LOCATION", "CLOUD_ML_REGION"):
        monkeypatch.delenv(name, raising=False)


def encoded(profile: Profile, *messages: Message, **settings: Any) -> tuple[str, Any]:
    request = Request(messages=messages or [user("Hi")], settings=Settings(**settings))
    sending = WIRE.encode(request, profile, EncodingMemo())
    body = msgspec.json.decode(sending.body)
    assert WIRE.lint(body, profile) == []
    return sending.path, body


@pytest.mark.parametrize(
    ("model", "streams", "path"),
    [
        ("gemini-2.5-flash", True, "/publishers/google/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
        ("gemini-2.5-flash", False, "/publishers/google/models/gemini-2.5-flash:generateContent"),
        ("endpoints/123", False, "/endpoints/123:generateContent"),
        ("claude-opus-5@1", True, "/publishers/anthropic/models/claude-opus-5@1:streamRawPredict"),
        ("publishers/anthropic/models/claude-opus-5", False, "/publishers/anthropic/models/claude-opus-5:rawPredict"),
    ],
)
def test_the_path_names_the_maker_and_the_model(model: str, streams: bool, path: str) -> None:
    assert encoded(Profile(provider="vertex", model=model, streams=streams, cache="none"))[0] == path


@pytest.mark.parametrize(("model", "claude"), [("claude-3", True), ("a/b/claude-3", True), ("gemini-claude", False)])
def test_claude_is_known_by_its_name(model: str, claude: bool) -> None:
    assert is_claude(model) is claude


def test_a_body_for_claude_names_the_version_and_not_the_model() -> None:
    _, body = encoded(CLAUDE, max_output_tokens=64)
    assert body == {
        "anthropic_version": "vertex-2023-10-16",
        "max_tokens": 64,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }
    _, other = encoded(CLAUDE, extra_body={"model": "another"})
    assert "model" not in other
    assert other["anthropic_version"] == "vertex-2023-10-16"


def test_ids_of_calls_and_results_are_left_out_for_gemini() -> None:
    reply = Message(
        "assistant", (ToolCall("c1", "look"), ToolCall("c2", "look")), provider="vertex", model=GEMINI.model
    )
    results = Message("tool", (ToolResult("c1", "look", (Text("a"),)), ToolResult("c2", "look", (Text("b"),))))
    _, body = encoded(GEMINI, user("?"), reply, results)
    calls, told = body["contents"][1]["parts"], body["contents"][2]["parts"]
    assert [sorted(each["functionCall"]) for each in calls] == [["args", "name"]] * 2
    assert [each["functionResponse"]["response"] for each in told] == [{"output": "a"}, {"output": "b"}]
    assert all("id" not in each["functionResponse"] for each in told)
    _, elsewhere = encoded(msgspec.structs.replace(GEMINI, dialect=""), user("?"), reply, results)
    assert elsewhere["contents"][1]["parts"][0]["functionCall"]["id"] == "c1"


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def test_an_agent_runs_gemini_with_a_token_that_a_function_returns() -> None:
    tokens = iter(["t1", "t2"])

    async def get_token() -> str:
        return next(tokens)

    call = chunk({"functionCall": {"name": "look", "args": {}}}, finish="STOP")
    transport = CannedTransport(as_events(call), as_events(chunk({"text": "Seen."}, finish="STOP")))
    model = open_model("vertex:gemini-2.5-flash", api_key=get_token, transport=transport)
    outcome = await Agent(model, tools=[look]).run("Look.")
    assert outcome.text == "Seen."
    assert [headers["authorization"] for _, headers, _ in transport.posted] == ["Bearer t1", "Bearer t2"]
    path = "/publishers/google/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    assert [url for url, _, _ in transport.posted] == [BASE + path] * 2
    declared = transport.bodies[0]["tools"][0]["functionDeclarations"]
    assert [each["name"] for each in declared] == ["look"]


async def test_an_agent_runs_claude_and_marks_its_prompt_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "us-east5")
    monkeypatch.setenv("VERTEX_ACCESS_TOKEN", "t")
    answer = {
        "content": [{"type": "text", "text": "Yes."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 9, "output_tokens": 4},
    }
    transport = CannedTransport(msgspec.json.encode(answer))
    model = open_model("vertex:claude-sonnet-4-5@20250929", transport=transport)
    outcome = await Agent(model, instructions="Be brief.").run("Really?")
    assert (outcome.text, outcome.usage.input_tokens) == ("Yes.", 9)
    url, headers, _ = transport.posted[0]
    assert url == (
        "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5"
        "/publishers/anthropic/models/claude-sonnet-4-5@20250929:streamRawPredict"
    )
    assert headers["authorization"] == "Bearer t"
    assert "anthropic-version" not in headers
    assert transport.bodies[0]["system"][0]["cache_control"] == {"type": "ephemeral"}


# -- recordings --------------------------------------------------------------------------------------------------------


def from_vertex(exchange: Exchange) -> bool:
    return exchange.provider == "google-vertex" and exchange.request is not None


def profile_of(exchange: Exchange) -> Profile:
    model = exchange.path.rpartition("/models/")[2].partition(":")[0]
    streams = "stream" in exchange.path.rpartition(":")[2]
    return Profile(
        provider="vertex",
        model=model,
        dialect="vertex",
        documents=True,
        audio=True,
        video=True,
        streams=streams,
        cache="none",
    )


@pytest.mark.wire
@pytest.mark.parametrize("api", ["gemini", "anthropic-messages"])
def test_recorded_paths_are_the_ones_that_we_would_post_to(api: str) -> None:
    found = [
        each for recording in recordings(api, "google-vertex") for each in recording.exchanges if from_vertex(each)
    ]
    assert found
    for exchange in found:
        path, _ = encoded(profile_of(exchange))
        assert exchange.path.endswith(path.partition("?")[0]), exchange.label


@pytest.mark.wire
@each_exchange("anthropic-messages", where=from_vertex)
def test_recorded_traffic_of_claude_is_understood(exchange: Exchange) -> None:
    profile = profile_of(exchange)
    assert WIRE.lint(exchange.request, profile) == []
    assert set(exchange.request) - set(encoded(profile)[1]) <= {
        "system",
        "temperature",
        "thinking",
        "tools",
        "tool_choice",
    }
    decoder = WIRE.decoder(profile, exchange.media_type)
    *events, last = [*decoder.feed(exchange.data), *decoder.end()]
    assert isinstance(last, ReplyFinished)
    message = assemble_reply(events, last)
    assert message.text or message.tool_calls
    assert message.usage is not None


@pytest.mark.wire
@each_exchange("gemini", where=lambda each: from_vertex(each) and each.ok and b"blockReason" not in each.data)
def test_recorded_traffic_of_gemini_is_understood(exchange: Exchange) -> None:
    profile = profile_of(exchange)
    decoder = WIRE.decoder(profile, exchange.media_type)
    *events, last = [*decoder.feed(exchange.data), *decoder.end()]
    assert isinstance(last, ReplyFinished)
    message = assemble_reply(events, last)
    assert message.text or message.tool_calls or message.stop is StopReason.LENGTH
    assert message.metadata.get("service_tier") == (
        "ON_DEMAND" if b'"trafficType":"' in exchange.data.replace(b" ", b"") else None
    )
