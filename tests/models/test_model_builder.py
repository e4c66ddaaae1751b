"""A name becomes a model: the right wire at the right place, with a key and a profile, or an error that says what to
set.
"""

import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from perdure import BadRequest, ConfigError, Document, user
from perdure._models.builder import list_provider_models
from perdure._models.catalogue.providers import PROVIDERS, find_provider
from perdure._models.catalogue.saved_profiles import SavedProfile, save_profile
from perdure.events import TextDelta
from perdure.models import (
    HttpModel,
    HttpTransport,
    Price,
    Request,
    Throttle,
    model_info,
    open_model,
    openai_compatible,
    tapped,
)
from tests.models.canned import CannedResponse, CannedTransport
from tests.wire.server import Playback, Reply, json_reply, sse


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch, tmp_path):
    for variable in {name for each in PROVIDERS for name in (*each.key_variables, *each.url_variables)}:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PERDURE_PROFILES", raising=False)


@pytest.fixture
def endpoint(monkeypatch):
    """Opens a model, and gives the endpoint inside it."""
    made = []

    class Seen(HttpModel):
        def __init__(self, wire, profile, **options):
            super().__init__(wire, profile, **options)
            made.append((wire.name, profile, options))

    monkeypatch.setattr("perdure._models.endpoint.http_model.HttpModel", Seen)

    def open_(spec, *address, **options):
        if callable(spec):
            spec(*address, "m", **options)
        else:
            open_model(spec, **options)
        return made[-1]

    return open_


# -- what is opened ----------------------------------------------------------------------------------------------------


OPENAI, OPENROUTER = "https://api.openai.com/v1", "https://openrouter.ai/api/v1"
GEMINI, AWS = "https://generativelanguage.googleapis.com/v1beta", "https://bedrock-runtime.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("spec", "author", "wire", "url"),
    [
        ("openai", ("openai", "gpt-6.1-sol"), "openai_responses", OPENAI),
        ("openai:gpt-5", ("openai", "gpt-5"), "openai_responses", OPENAI),
        ("openai-chat:gpt-5", ("openai-chat", "gpt-5"), "openai_chat", OPENAI),
        ("anthropic", ("anthropic", "claude-sonnet-5-5"), "anthropic", "https://api.anthropic.com"),
        ("Claude/claude-opus-5", ("anthropic", "claude-opus-5"), "anthropic", "https://api.anthropic.com"),
        ("google/gemini-2.5-pro", ("gemini", "gemini-2.5-pro"), "gemini", GEMINI),
        ("openrouter/openai/gpt-5", ("openrouter", "openai/gpt-5"), "openai_chat", OPENROUTER),
        ("ollama:qwen3:4b", ("ollama", "qwen3:4b"), "openai_chat", "http://localhost:11434/v1"),
        ("ollama-native:qwen3:4b", ("ollama-native", "qwen3:4b"), "ollama", "http://localhost:11434"),
        ("bedrock:amazon.nova-lite-v1:0", ("bedrock", "amazon.nova-lite-v1:0"), "bedrock", AWS),
    ],
)
def test_a_name_says_who_is_asked_for_what_how_and_where(endpoint, spec, author, wire, url):
    opened, profile, options = endpoint(spec, api_key="k")
    assert (profile.provider, profile.model) == author
    assert (opened, options["base_url"]) == (wire, url)


@pytest.mark.parametrize(
    "provider", [each for each in PROVIDERS if each.wire not in {"codex", "local"}], ids=lambda e: e.name
)
def test_every_provider_of_the_catalogue_can_be_opened(provider, monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://resource.openai.azure.com")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    name = provider.default_model or provider.example_model
    info = model_info(open_model(f"{provider.name}:{name}", api_key="" if provider.wire == "demo" else "k"))
    assert (info.provider, info.name) == (provider.name, name)


def test_whoever_answers_in_the_place_of_openai_speaks_chat_completions(endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8080/v1")
    wire, profile, options = endpoint("openai:gpt-5")
    assert (wire, options["base_url"], profile.dialect) == ("openai_chat", "http://localhost:8080/v1", "")
    assert (profile.price, profile.context_tokens) == (None, None)


def test_an_endpoint_may_be_named_by_its_address(endpoint):
    wire, profile, options = endpoint("http://localhost:8080/v1#qwen3:4b")
    assert (wire, options["base_url"]) == ("openai_chat", "http://localhost:8080/v1")
    assert (profile.provider, profile.model, profile.context_tokens) == ("localhost:8080", "qwen3:4b", None)


def test_the_address_of_a_known_provider_is_that_provider(endpoint):
    _, profile, _ = endpoint("https://api.groq.com/openai/v1/#openai/gpt-oss-20b", api_key="k")
    assert (profile.provider, profile.dialect) == ("groq", "groq")
    wire, profile, _ = endpoint("https://api.openai.com/v1#gpt-5", api_key="k")
    assert (wire, profile.provider) == ("openai_chat", "openai-chat")


async def test_any_wire_can_be_spoken_at_any_address():
    whole = {
        "type": "message", "role": "assistant", "model": "m", "id": "x", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Ready."}], "usage": {"input_tokens": 3, "output_tokens": 2},
    }  # fmt: skip
    async with Playback([json_reply(whole)]) as server:
        model = openai_compatible(f"{server.base_url}/v1", "m", wire="anthropic", api_key="k", provider="house")
        events = [event async for event in model.stream(Request(messages=(user("Are you?"),)))]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Ready."
    assert model_info(model).provider == "house"
    assert server.received[0].path == "/v1/messages"
    assert server.received[0].headers["x-api-key"] == "k"


@pytest.fixture
def compatible(endpoint):
    """Opens a model by its address, and gives the endpoint inside it."""

    def open_(url, **options):
        return endpoint(openai_compatible, url, **options)

    return open_


DEEPSEEK, XAI = "https://api.deepseek.com", "https://api.x.ai/v1"


@pytest.mark.parametrize(
    ("url", "asked", "known"),
    [
        (DEEPSEEK, "anthropic", ("deepseek", "")),
        (XAI, "openai_responses", ("xai", "xai")),
        (OPENAI, "openai_responses", ("openai", "")),
        (OPENAI, "openai_chat", ("openai-chat", "openai")),
        (GEMINI, "openai_chat", ("gemini", "")),
    ],
)
def test_the_wire_that_is_asked_for_is_used_at_a_known_address_too(compatible, monkeypatch, url, asked, known):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere.example/v1")
    wire, profile, options = compatible(url, wire=asked, api_key="k")
    assert (wire, options["base_url"]) == (asked, url)
    assert (profile.provider, profile.dialect) == known


async def test_a_key_goes_into_the_header_of_the_wire_that_is_asked_for(compatible, monkeypatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "the key")
    _, _, options = compatible(DEEPSEEK, wire="anthropic")
    assert await options["auth"].headers(DEEPSEEK, b"") == {"x-api-key": "the key"}


@pytest.mark.parametrize("url", ["http://localhost:8080/v1", DEEPSEEK])
def test_the_wire_that_is_asked_for_wins_over_a_saved_profile(compatible, url):
    save_profile(SavedProfile(base_url=url, model="m", wire="openai_chat", profile={"context_tokens": 2048}))
    for asked, window in ((None, 2048), ("openai_chat", 2048), ("anthropic", None)):
        wire, profile, _ = compatible(url, wire=asked, api_key="k")
        assert (wire, profile.context_tokens) == (asked or "openai_chat", window)


# -- what is known of it -----------------------------------------------------------------------------------------------


def test_a_model_has_the_facts_of_its_family_and_a_price(endpoint):
    _, profile, _ = endpoint("anthropic:claude-sonnet-4-5", api_key="k")
    assert (profile.context_tokens, profile.images, profile.documents) == (200_000, True, True)
    assert (profile.cache, profile.schema) == ("marked", "anthropic")
    assert profile.price == Price(input_usd=3.0, output_usd=15.0, cache_read_usd=0.3, cache_write_usd=3.75)


def test_a_cache_is_marked_for_the_models_that_need_it(endpoint):
    assert endpoint("openrouter:anthropic/claude-haiku-4.5", api_key="k")[1].cache == "marked"
    assert endpoint("openrouter:openai/gpt-5", api_key="k")[1].cache == "automatic"


def test_a_server_of_your_own_decides_how_much_of_a_window_there_is(endpoint):
    _, profile, _ = endpoint("ollama:llama3.1:8b")
    assert profile.context_tokens is None
    assert profile.price == Price(input_usd=0.0, output_usd=0.0)


def test_who_knows_better_is_believed(endpoint):
    ours = {"context_tokens": 999, "images": False}
    _, profile, _ = endpoint("anthropic", api_key="k", profile=ours)
    assert (profile.context_tokens, profile.images, profile.documents) == (999, False, True)


def test_what_a_probe_has_learned_is_used(endpoint):
    kept = SavedProfile(
        base_url="http://localhost:11434/v1",
        model="small",
        wire="openai_responses",
        profile={"tools": "json", "context_tokens": 2048},
    )
    save_profile(kept)
    wire, profile, _ = endpoint("ollama:small")
    assert (wire, profile.tools, profile.context_tokens) == ("openai_responses", "json", 2048)
    assert endpoint("ollama:small", profile={"context_tokens": 1024})[1].context_tokens == 1024


async def test_whoever_wants_to_sees_what_is_sent_and_what_comes():
    class Look:
        def __init__(self):
            self.requests, self.statuses, self.lines = [], [], []

        def on_request(self, exchange):
            self.requests.append(exchange)

        def on_answer(self, exchange, status, headers):
            self.statuses.append(status)

        def on_line(self, exchange, line):
            self.lines.append(line)

    look = Look()
    said = sse({"choices": [{"delta": {"content": "Ready."}, "finish_reason": "stop"}]}, "[DONE]")
    async with Playback([Reply(said, headers={"content-type": "text/event-stream"})]) as server:
        model = open_model(f"{server.base_url}/v1#m", api_key="a-secret-key", transport=tapped(HttpTransport(), look))
        told = [event async for event in model.stream(Request(messages=(user("Are you?"),)))]
    assert told[0] == TextDelta("Ready.")
    assert b"Are you?" in look.requests[0].body
    assert "a-secret-key" not in str(look.requests)
    assert (look.statuses, look.lines[-2:]) == ([200], [b"data: [DONE]\n", b"\n"])


def test_a_throttle_of_its_own_takes_the_place_of_the_shared_one(endpoint):
    ours = Throttle(concurrency=1)
    assert endpoint("ollama:small", throttle=ours)[2]["throttle"] is ours


async def test_an_error_that_may_pass_is_tried_as_often_as_is_said():
    down = Reply(b"busy", 503, {"retry-after": "0"}, "text/plain")
    async with Playback(
        [down, Reply(sse({"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}, "[DONE]"))]
    ) as server:
        model = open_model(f"{server.base_url}/v1#m", attempts=1)
        with pytest.raises(Exception, match="busy"):
            [event async for event in model.stream(Request(messages=(user("Hi"),)))]
    assert len(server.received) == 1


# -- what is missing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("openai:gpt-5", "openai:gpt-5 needs an API key, and none is set: set OPENAI_API_KEY (get one at https://"),
        ("gemini", "set GEMINI_API_KEY or GOOGLE_API_KEY"),
        ("ollama", "'ollama' alone names no model, and Ollama has no default model: name one, as in 'ollama:qwen3:4b'"),
        ("azure", "name one, as in 'azure:the-name-of-your-deployment'"),
        ("azure:mine", "the base URL of Azure OpenAI is not set: set AZURE_OPENAI_ENDPOINT"),
        ("https://host/v1", "'https://host/v1': name a model"),
        ("ftp://host/v1#m", "is not a URL"),
        ("codex", "codex login"),
    ],
)
def test_what_is_missing_is_named_with_what_to_set(spec, complaint):
    with pytest.raises(ConfigError) as caught:
        open_model(spec)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"attempts": 0}, "open_model(attempts=0): give a whole number, 1 or more"),
        ({"api_key": 3}, "open_model(api_key=3): give text"),
        (
            {"profile": {"tolls": "json"}},
            "open_model(profile={'tolls': …}): unknown field; a profile has provider",
        ),
        ({"profile": {"tools": "perhaps"}}, "Invalid enum value 'perhaps'"),
    ],
)
def test_options_that_cannot_work_are_refused(options, complaint):
    with pytest.raises(ConfigError) as caught:
        open_model("ollama:small", **options)
    assert complaint in str(caught.value)


def test_a_model_in_this_process_takes_no_options():
    with pytest.raises(ConfigError, match="'demo' runs in this process, and takes no options besides its name"):
        open_model("demo", api_key="k")


def test_a_wire_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match=r"openai_compatible\(wire='telegraph'\): use 'openai_chat'"):
        openai_compatible("http://h/v1", "m", wire="telegraph")  # type: ignore[arg-type]


def test_a_key_is_in_no_representation_of_a_model():
    model = open_model("anthropic", api_key="very-secret")
    assert "very-secret" not in repr(model) + repr(model_info(model))


# -- lists of models ---------------------------------------------------------------------------------------------------


async def test_a_provider_is_asked_which_models_it_has(monkeypatch):
    listed = {"object": "list", "data": [{"id": "b", "context_length": 8192}, {"id": "a"}, {"object": "nameless"}]}
    async with Playback(lambda _: json_reply(listed)) as server:
        monkeypatch.setenv("GROQ_BASE_URL", f"{server.base_url}/v1")
        monkeypatch.setenv("GROQ_API_KEY", "k")
        found = await list_provider_models("groq")
    assert found is not None
    assert [(each.name, each.context_tokens) for each in found] == [("b", 8192), ("a", None)]
    assert (server.received[0].method, server.received[0].path) == ("GET", "/v1/models")
    assert server.received[0].headers["authorization"] == "Bearer k"


async def test_whoever_has_no_list_is_not_asked():
    assert await list_provider_models("demo") is None
    with pytest.raises(ConfigError, match="did you mean 'groq'"):
        await list_provider_models("grog")


# -- cost --------------------------------------------------------------------------------------------------------------


def test_opening_a_model_again_takes_next_to_nothing(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    code = (
        "import time; from perdure.models import open_model; open_model('openai:gpt-5'); t = time.process_time(); "
        "[open_model('openai:gpt-5') for _ in range(20)]; print((time.process_time() - t) / 20)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert float(done.stdout) < 0.01


def test_opening_a_model_writes_nothing_but_the_file_of_prices(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    open_model("ollama:small")
    open_model("openai:a-model-of-tomorrow", api_key="k")
    written = [str(path.relative_to(tmp_path)) for path in Path(tmp_path).rglob("*") if path.is_file()]
    assert written == ["cache/perdure/prices.json"]


# -- documents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "reads"),
    [
        ("xai:grok-4.5", True),
        ("xai:grok-build-0.1", True),
        ("xai:grok-3", False),
        ("xai-chat:grok-4.5", False),
        ("mistral:mistral-medium-latest", True),
        ("mistral:ministral-8b-latest", True),
        ("mistral:codestral-latest", False),
        ("openrouter:deepseek/deepseek-v4", True),
        ("deepseek:deepseek-v4-flash", False),
        ("groq:openai/gpt-oss-120b", False),
    ],
)
def test_a_document_is_sent_where_the_provider_reads_it(endpoint, spec, reads):
    assert endpoint(spec, api_key="k")[1].documents is reads


async def test_documents_reach_xai_and_mistral_in_the_form_that_was_recorded():
    pdf = Document(data=b"%PDF-1.4", media_type="application/pdf", name="a.pdf")
    posted = []
    for name in ("xai:grok-4.5", "mistral:mistral-medium-latest"):
        transport = CannedTransport(CannedResponse(b"{}", "application/json", 400))
        model = open_model(name, api_key="k", transport=transport)
        with pytest.raises(BadRequest):
            [event async for event in model.stream(Request(messages=[user(["What is it?", pdf])]))]
        posted.append(transport.bodies[0])
    of_xai, of_mistral = posted
    assert of_xai["input"][0]["content"][1] == {
        "type": "input_file",
        "filename": "a.pdf",
        "file_data": "JVBERi0xLjQ=",
        "mime_type": "application/pdf",
    }
    assert of_mistral["messages"][0]["content"][1] == {
        "type": "document_url",
        "document_url": "data:application/pdf;base64,JVBERi0xLjQ=",
        "document_name": "a.pdf",
    }


# -- keys that are functions -------------------------------------------------------------------------------------------


async def test_a_key_may_be_a_function_that_is_called_for_each_request():
    keys = iter(["k1", "k2"])
    answer = CannedResponse(b'{"choices":[{"message":{"content":"Yes."},"finish_reason":"stop"}]}', "application/json")
    transport = CannedTransport(CannedResponse(b"{}", "application/json", 401), answer)
    model = open_model("groq:llama", api_key=lambda: next(keys), transport=transport)
    events = [event async for event in model.stream(Request(messages=[user("?")]))]
    assert any(isinstance(event, TextDelta) for event in events)
    assert [headers["authorization"] for _, headers, _ in transport.posted] == ["Bearer k1", "Bearer k2"]


def test_bedrock_takes_no_function_and_a_number_is_no_key():
    with pytest.raises(ConfigError, match="renewed by themselves"):
        open_model("bedrock:nova", api_key=lambda: "k")
    with pytest.raises(ConfigError, match="api_key"):
        open_model("groq:llama", api_key=cast("str", 7))


@pytest.mark.parametrize(("attempts", "is_allowed"), [(-1, False), (0, False), (1, True), (2, True), (True, False)])
def test_a_request_is_sent_at_least_once(attempts, is_allowed):
    if is_allowed:
        open_model("openai:gpt-5", api_key="k", attempts=attempts)
        return
    with pytest.raises(ConfigError, match="attempts"):
        open_model("openai:gpt-5", api_key="k", attempts=attempts)


def test_claude_at_vertex_has_the_schemas_and_the_cache_of_claude(endpoint, monkeypatch):
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    _, claude, _ = endpoint("vertex:claude-sonnet-4-5@20250929", api_key="t")
    assert (claude.schema, claude.cache, claude.dialect) == ("anthropic", "marked", "")
    _, gemini, _ = endpoint("vertex:gemini-2.5-flash", api_key="t")
    assert (gemini.schema, gemini.dialect) == ("gemini", "vertex")
    assert gemini.cache != "marked"


@pytest.mark.parametrize(("asked", "dialect"), [("openai_responses", "groq"), ("anthropic", "")])
def test_a_dialect_goes_with_the_wires_of_openai_alone(compatible, asked, dialect):
    wire, profile, _ = compatible("https://api.groq.com/openai/v1", wire=asked, api_key="k")
    assert (wire, profile.provider, profile.dialect) == (asked, "groq", dialect)


async def test_a_list_without_a_key_is_refused_with_what_to_set(monkeypatch):
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    monkeypatch.delenv("GROQ_BASE_URL", raising=False)
    groq = find_provider("groq")
    assert groq is not None
    with pytest.raises(ConfigError) as caught:
        await list_provider_models("groq")
    assert str(caught.value) == (
        f"groq:{groq.default_model} needs an API key, and none is set: set GROQ_API_KEY "
        f"(get one at {groq.key_help_url}), or pass api_key=…"
    )


@pytest.mark.parametrize("provider", ["bedrock", "codex", "vertex", "local", "demo"])
async def test_providers_without_a_list_are_known(provider):
    assert await list_provider_models(provider) is None
