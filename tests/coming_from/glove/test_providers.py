"""Providers and reasoning, as Glove's reference describes `createAdapter` and `OpenAICompatReasoningOptions`."""

import asyncio
import json
from typing import Any

import pytest

from perdure import Agent, AuthFailed, ConfigError, Limits, ProviderDown, ReplyCutOff, Settings, Thinking, tool
from perdure._models.catalogue.providers import PROVIDERS
from perdure.models import Deadlines, HttpTransport, list_provider_statuses, open_model, openai_compatible, providers
from tests.coming_from.outcomes import present
from tests.coming_from.shows import shows
from tests.models.canned import CannedResponse, CannedTransport
from tests.wire.server import Playback, Received, Reply


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch, tmp_path):
    for variable in {name for each in PROVIDERS for name in (*each.key_variables, *each.url_variables)}:
        monkeypatch.delenv(variable, raising=False)
    for variable in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def refusing() -> CannedTransport:
    """A provider that refuses every key: what was posted to it can be read."""
    return CannedTransport(CannedResponse(b'{"error": {"message": "bad key"}}', "application/json", 401))


def chat(*deltas: dict[str, Any], finish: str = "stop") -> bytes:
    """A streamed reply of a chat completions endpoint."""
    chunks = [{"id": "1", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode() + b"data: [DONE]\n\n"


async def post(spec: str, settings: Settings | None = None, **options: Any) -> tuple[str, dict[str, str], Any]:
    """Send a request to a model, and return what was posted: the URL, the headers, the body."""
    transport = refusing()
    model = open_model(spec, transport=transport, attempts=1, **options)
    outcome = await Agent(model, settings=settings or Settings()).run("Hello")
    assert isinstance(outcome.error, AuthFailed)
    [(url, headers, _)] = transport.posted
    return url, {name.lower(): value for name, value in headers.items()}, transport.bodies[0]


# -- createAdapter -----------------------------------------------------------------------------------------------------

CLOUD = {
    "openai": ("OPENAI_API_KEY", "https://api.openai.com/v1/responses", "authorization"),
    "openai-chat": ("OPENAI_API_KEY", "https://api.openai.com/v1/chat/completions", "authorization"),
    "anthropic": ("ANTHROPIC_API_KEY", "https://api.anthropic.com/v1/messages", "x-api-key"),
    "openrouter": ("OPENROUTER_API_KEY", "https://openrouter.ai/api/v1/chat/completions", "authorization"),
    "gemini": ("GEMINI_API_KEY", "https://generativelanguage.googleapis.com/v1beta/models/", "x-goog-api-key"),
    "minimax": ("MINIMAX_API_KEY", "https://api.minimax.io/anthropic/v1/messages", "x-api-key"),
    "kimi": ("MOONSHOT_API_KEY", "https://api.moonshot.ai/v1/chat/completions", "authorization"),
    "glm": ("ZHIPUAI_API_KEY", "https://open.bigmodel.cn/api/paas/v4/chat/completions", "authorization"),
    "mimo": ("MIMO_API_KEY", "https://api.xiaomimimo.com/v1/chat/completions", "authorization"),
    "bedrock": ("AWS_ACCESS_KEY_ID", "https://bedrock-runtime.us-east-1.amazonaws.com/model/", "authorization"),
}
"""The variable of each provider's key, where its requests go, and the header that has the key."""


@shows(
    "glove",
    "createAdapter",
    "glove-core/models/providers",
    'provider."openai"',
    'provider."anthropic"',
    'provider."openrouter"',
    'provider."gemini"',
    'provider."minimax"',
    'provider."kimi"',
    'provider."glm"',
    'provider."mimo"',
    'provider."bedrock"',
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "OPENROUTER_API_KEY",
    "GEMINI_API_KEY",
    "MINIMAX_API_KEY",
    "MOONSHOT_API_KEY",
    "ZHIPUAI_API_KEY",
    "MIMO_API_KEY",
    "AWS_ACCESS_KEY_ID",
)
@pytest.mark.parametrize("name", CLOUD)
async def test_a_provider_is_opened_by_its_name_and_its_key_is_read_for_each_request(name, monkeypatch):
    variable, url, header = CLOUD[name]
    monkeypatch.setenv(variable, "key-one-123456")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-abcdefgh")
    transport = refusing()
    model = open_model(name, transport=transport, attempts=1)
    monkeypatch.setenv(variable, "key-two-123456")
    outcome = await Agent(model).run("Hello")
    [(posted, headers, _)] = transport.posted
    assert posted.startswith(url)
    assert "key-two-123456" in headers[header]
    assert isinstance(outcome.error, AuthFailed)


@shows("glove", 'provider."ollama"', 'provider."lmstudio"', "CreateAdapterOptions.baseURL", "provider.requiresApiKey")
@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("ollama", "http://localhost:11434/v1/chat/completions"),
        ("ollama-native", "http://localhost:11434/api/chat"),
        ("lmstudio", "http://localhost:1234/v1/chat/completions"),
    ],
)
async def test_a_local_provider_needs_no_key_but_the_name_of_a_model(name, url):
    posted, headers, body = await post(f"{name}:llama3")
    assert (posted, body["model"], "authorization" in headers) == (url, "llama3", False)
    moved, _, _ = await post(f"{name}:llama3", base_url="http://localhost:9999/v1")
    assert moved.startswith("http://localhost:9999/")
    with pytest.raises(ConfigError, match=name):
        open_model(name)


@shows("glove", 'provider."bedrock"')
async def test_bedrock_takes_a_bearer_token_or_a_profile_as_well(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "token-123456")
    _, headers, _ = await post("bedrock")
    assert headers["authorization"] == "Bearer token-123456"
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK")
    file = tmp_path / "credentials"
    file.write_text("[work]\naws_access_key_id = AKIAWORK\naws_secret_access_key = secret-abcdefgh\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "work")
    _, headers, _ = await post("bedrock")
    assert "Credential=AKIAWORK/" in headers["authorization"]


@shows(
    "glove",
    "CreateAdapterOptions",
    "CreateAdapterOptions.provider",
    "CreateAdapterOptions.model",
    "CreateAdapterOptions.apiKey",
    "CreateAdapterOptions.maxTokens",
    "CreateAdapterOptions.baseURL",
    "provider.defaultModel",
    "provider.defaultMaxTokens",
)
async def test_model_key_length_and_address_are_options(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-environment")
    url, headers, body = await post(
        "anthropic:claude-opus-5",
        Settings(max_output_tokens=4096),
        api_key="key-given",
        base_url="https://proxy.example",
    )
    assert url == "https://proxy.example/v1/messages"
    assert (headers["x-api-key"], body["model"], body["max_tokens"]) == ("key-given", "claude-opus-5", 4096)
    model: Any = open_model("anthropic", transport=refusing())
    _, _, body = await post("anthropic")
    assert (body["model"], body["max_tokens"]) == (model.info.name, model.info.max_output_tokens)
    transport = refusing()
    shim = openai_compatible("https://shim.example/v1", "qwen", api_key="k", transport=transport, attempts=1)
    await Agent(shim).run("Hello")
    assert transport.posted[0][0] == "https://shim.example/v1/chat/completions"


@shows("glove", "CreateAdapterOptions.timeout")
async def test_a_provider_that_does_not_answer_in_time_is_given_up():
    never = asyncio.Event()

    async def say_nothing(_: Received) -> Reply:
        await never.wait()
        return Reply()

    for answer, deadlines in (
        (say_nothing, Deadlines(first_byte_seconds=0.05)),
        (lambda _: Reply(b"", end="stall"), Deadlines(idle_seconds=0.05)),
    ):
        async with Playback(answer) as server:
            transport = HttpTransport(deadlines=deadlines)
            model = open_model(f"{server.base_url}/v1#slow", api_key="k", attempts=1, transport=transport)
            outcome = await Agent(model, limits=Limits(timeout_seconds=20)).run("Hello")
            assert isinstance(outcome.error, ProviderDown | ReplyCutOff)
            never.set()
    assert 0 < Deadlines().idle_seconds <= 600


# -- getAvailableProviders ---------------------------------------------------------------------------------------------


@shows(
    "glove",
    "getAvailableProviders",
    "getAvailableProviders.id",
    "getAvailableProviders.name",
    "getAvailableProviders.available",
    "getAvailableProviders.defaultModel",
    "provider.id",
    "provider.name",
    "provider.baseURL",
    "provider.envVar",
    "provider.defaultModel",
    "provider.format",
    "provider.requiresApiKey",
)
def test_providers_are_listed_with_what_they_need(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    offers = {each.name: each for each in list_provider_statuses()}
    assert set(offers) <= set(providers())
    openai, anthropic, ollama = offers["openai"], offers["anthropic"], offers["ollama"]
    assert (openai.title, openai.available, openai.why) == ("OpenAI", True, "OPENAI_API_KEY is set")
    assert (anthropic.available, anthropic.why) == (False, "set ANTHROPIC_API_KEY")
    assert (ollama.available, ollama.why, ollama.default_model) == (True, "needs no key", "")
    assert (openai.wire, anthropic.wire, offers["bedrock"].wire) == ("openai_responses", "anthropic", "bedrock")
    assert (openai.base_url, openai.variables) == ("https://api.openai.com/v1", ("OPENAI_API_KEY",))
    model: Any = open_model("openai")
    assert openai.default_model == model.info.name


# -- reasoning ---------------------------------------------------------------------------------------------------------


@tool(effect="read")
async def get_weather(city: str) -> str:
    """Get weather for a city."""
    return f"Rain in {city}."


CALL = {
    "index": 0,
    "id": "c1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
}


@shows(
    "glove",
    "CreateAdapterOptions.reasoning",
    "OpenAICompatReasoningOptions",
    "OpenAICompatReasoningOptions.echo",
    "Message.reasoning_content",
)
@pytest.mark.parametrize("echo", [None, True, False])
@pytest.mark.parametrize(
    ("spec", "field", "turned_off"),
    [
        # Kimi refuses calls without the field: there, it stays, and is blank
        ("kimi:kimi-k3.1-pro", "reasoning_content", " "),
        ("https://shim.example/v1#qwen3", "reasoning_content", None),
        ("openrouter:qwen/qwen3", "reasoning", None),
    ],
)
async def test_reasoning_is_captured_and_sent_back_with_the_calls_unless_that_is_turned_off(
    spec, field, turned_off, echo
):
    transport = CannedTransport(
        chat({field: "Which "}, {field: "city?"}, {"tool_calls": [CALL]}, finish="tool_calls"),
        chat({"content": "Rain."}),
    )
    model = open_model(spec, api_key="k", transport=transport)
    outcome = await Agent(model, tools=[get_weather], settings=Settings(echo_reasoning=echo)).run("Weather?")
    assert (outcome.text, outcome.messages[1].thinking) == ("Rain.", "Which city?")
    assert isinstance(outcome.messages[1].parts[0], Thinking)
    assert transport.bodies[1]["messages"][-2].get(field) == (turned_off if echo is False else "Which city?")


@shows("glove", "Message.reasoning_content")
async def test_reasoning_goes_back_to_the_model_that_wrote_it_and_to_no_other():
    think = chat({"reasoning_content": "Which city?"}, {"tool_calls": [CALL]}, finish="tool_calls")
    first = CannedTransport(think, chat({"content": "Rain."}))
    second = CannedTransport(chat({"content": "Still rain."}))
    author = open_model("kimi", api_key="k", transport=first)
    session = Agent(author, tools=[get_weather]).session("s")
    await session.run("Weather?")
    await session.run("And now?", model=open_model("glm", api_key="k", transport=second))
    assert "Which city?" in json.dumps(first.bodies[1])
    assert "Which city?" not in json.dumps(second.bodies[0])


@shows(
    "glove",
    "CreateAdapterOptions.reasoningEffort",
    'CreateAdapterOptions."minimal"',
    'CreateAdapterOptions."low"',
    'CreateAdapterOptions."medium"',
    'CreateAdapterOptions."high"',
    "OpenAICompatReasoningOptions.effort",
    "reasoning_effort",
    'OpenAICompatReasoningOptions."minimal"',
    'OpenAICompatReasoningOptions."low"',
    'OpenAICompatReasoningOptions."medium"',
    'OpenAICompatReasoningOptions."high"',
)
@pytest.mark.parametrize("effort", ["minimal", "low", "medium", "high"])
async def test_an_effort_is_sent_in_the_field_of_that_name(effort):
    for spec in ("openai-chat:gpt-5", "https://shim.example/v1#glm-4.6"):
        _, _, body = await post(spec, Settings(reasoning_effort=effort), api_key="k")
        assert body["reasoning_effort"] == effort
    _, _, body = await post("mimo", Settings(reasoning_effort=effort), api_key="k")
    assert body.get("reasoning_effort") == (None if effort == "minimal" else effort)


@shows("glove", "CreateAdapterOptions.includeReasoningInText", "OpenAICompatReasoningOptions.includeInText")
async def test_reasoning_is_shown_in_the_text_when_it_is_asked_for():
    for wanted, text in ((None, "Rain."), (True, "<think>Wet?</think>")):
        transport = CannedTransport(chat({"reasoning_content": "Wet?"}, {"content": "Rain."}))
        model = open_model("kimi", api_key="k", transport=transport)
        outcome = await Agent(model, settings=Settings(reasoning_in_text=wanted)).run("Weather?")
        assert outcome.text.replace("\n", "").startswith(text)
        assert outcome.text.endswith("Rain.")
        assert present(outcome.message).thinking == "Wet?"


@shows(
    "glove",
    "OpenAICompatReasoningOptions.reasoningObject",
    "OpenAICompatReasoningOptions.reasoningObject.effort",
    "OpenAICompatReasoningOptions.reasoningObject.max_tokens",
    "OpenAICompatReasoningOptions.reasoningObject.exclude",
    "OpenAICompatReasoningOptions.reasoningObject.enabled",
)
@pytest.mark.parametrize(
    ("settings", "reasoning"),
    [
        (Settings(reasoning_effort="high"), {"effort": "high"}),
        (Settings(reasoning_tokens=2000), {"max_tokens": 2000}),
        (Settings(thinking="on"), {"enabled": True}),
        (Settings(thinking="off"), {"enabled": False}),
        (
            Settings(reasoning_effort="low", extra_body={"reasoning": {"exclude": True}}),
            {"effort": "low", "exclude": True},
        ),
        (
            Settings(extra_body={"reasoning": {"effort": "high", "max_tokens": 2000}}),
            {"effort": "high", "max_tokens": 2000},
        ),
    ],
)
async def test_a_gateway_gets_its_reasoning_object(settings, reasoning):
    _, _, body = await post("openrouter", settings, api_key="k")
    assert body["reasoning"] == reasoning


@shows(
    "glove",
    "OpenAICompatReasoningOptions.thinking",
    "OpenAICompatReasoningOptions.thinking.type",
    'OpenAICompatReasoningOptions."enabled"',
    'OpenAICompatReasoningOptions."disabled"',
    "OpenAICompatReasoningOptions.thinking.budget_tokens",
)
@pytest.mark.parametrize(
    ("settings", "thinking"),
    [
        (Settings(thinking="on"), {"type": "enabled"}),
        (Settings(thinking="off"), {"type": "disabled"}),
        (Settings(reasoning_tokens=1024), {"type": "enabled", "budget_tokens": 1024}),
    ],
)
async def test_a_thinking_object_is_sent_where_it_is_understood_and_to_a_shim_that_forwards_it(settings, thinking):
    _, _, body = await post("glm", settings, api_key="k")
    assert body["thinking"] == thinking
    _, _, body = await post("https://shim.example/v1#claude", settings, api_key="k", profile={"dialect": "anthropic"})
    assert body["thinking"] == thinking


@shows("glove", "OpenAICompatReasoningOptions.extraBody")
async def test_further_fields_are_merged_into_the_body():
    extra = {"enable_thinking": True, "thinking_budget": 1024}
    _, _, body = await post("https://shim.example/v1#qwen3", Settings(extra_body=extra, temperature=0.5), api_key="k")
    assert (body["enable_thinking"], body["thinking_budget"], body["temperature"]) == (True, 1024, 0.5)


@shows("glove", 'provider."gemini"')
async def test_the_thought_signatures_of_gemini_are_sent_back():
    asked = {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"functionCall": {"name": "get_weather", "args": {"city": "Oslo"}}, "thoughtSignature": "c2ln"}
                    ],
                },
                "finishReason": "STOP",
            }
        ]
    }
    said = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Rain."}]}, "finishReason": "STOP"}]}
    transport = CannedTransport(*[f"data: {json.dumps(each)}\n\n".encode() for each in (asked, said)])
    outcome = await Agent(open_model("gemini", api_key="k", transport=transport), tools=[get_weather]).run("Weather?")
    assert outcome.text == "Rain."
    assert transport.bodies[1]["contents"][1]["parts"][0]["thoughtSignature"] == "c2ln"
