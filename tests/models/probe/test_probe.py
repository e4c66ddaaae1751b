"""A probe learns the truth about an endpoint, whatever its quirks, and learns nothing from one that does not answer."""

import socket
import zlib
from contextlib import aclosing
from dataclasses import replace
from typing import Literal

import pytest

from perdure import AuthFailed, ConfigError, RateLimited, ToolCall, assistant, user
from perdure._io.http.transport import NetError
from perdure._models.catalogue.saved_profiles import load_profile
from perdure._models.endpoint.auth import ApiKey
from perdure._models.endpoint.memo import ProviderRuleError
from perdure._models.endpoint.wire import load_wire
from perdure._models.probe.client import MAX_REQUESTS, ProbeClient
from perdure._models.probe.experiments import KEYWORDS, build_red_png, find_used_keywords
from perdure.events import TextDelta
from perdure.models import HttpTransport, Profile, Request, model_info, open_model, openai_compatible, probe
from perdure.testing import FakeClock
from tests.models.canned import CannedResponse, CannedTransport
from tests.models.probe.quirky import Quirks, QuirkyServer, tools_of
from tests.wire.server import Playback, Reply, json_reply


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PERDURE_PROFILES", str(tmp_path / "profiles"))


async def learn(quirks, **options):
    async with Playback(QuirkyServer(quirks)) as server:
        learned = await probe(f"{server.base_url}/v1", quirks.model, **{"wire": "openai_chat", **options})
    assert learned.requests <= MAX_REQUESTS
    return learned


def found(learned, about):
    return next(each.found for each in learned.findings if each.about == about)


FULL = {
    "streams": True,
    "usage_in_stream": True,
    "tools": "native",
    "parallel_tool_calls": True,
    "strict_tools": True,
    "schema": "openai_strict",
    "output": "schema",
    "images": True,
    "dialect": "",
    "context_tokens": None,
}


@pytest.mark.parametrize(
    ("quirks", "differs"),
    [
        pytest.param(Quirks(), {}, id="everything"),
        pytest.param(Quirks(streams=False), {"streams": False, "usage_in_stream": False}, id="answers-at-once"),
        pytest.param(
            Quirks(streams=False, stream_options=False),
            {"streams": False, "usage_in_stream": False},
            id="refuses-streams",
        ),
        pytest.param(Quirks(stream_options=False), {"usage_in_stream": False}, id="refuses-stream-options"),
        pytest.param(Quirks(usage=False), {"usage_in_stream": False}, id="tells-no-usage"),
        pytest.param(Quirks(limit_name="max_completion_tokens"), {"dialect": "openai"}, id="newer-limit"),
        pytest.param(
            Quirks(tools="refused"),
            {"tools": "json", "strict_tools": False, "schema": "plain"},
            id="refuses-tools",
        ),
        pytest.param(
            Quirks(tools="ignored"), {"tools": "json", "strict_tools": False, "schema": "plain"}, id="ignores-tools"
        ),
        pytest.param(
            Quirks(tools="forced"), {"tools": "json", "strict_tools": False, "schema": "plain"}, id="calls-when-forced"
        ),
        pytest.param(Quirks(forced=False), {}, id="cannot-be-forced"),
        pytest.param(Quirks(parallel=False), {}, id="one-call-at-a-time"),
        pytest.param(Quirks(parallel_switch="ignored"), {"parallel_tool_calls": False}, id="ignores-the-switch"),
        pytest.param(Quirks(parallel_switch="refused"), {"parallel_tool_calls": False}, id="refuses-the-switch"),
        pytest.param(Quirks(strict=False), {"strict_tools": False, "schema": "plain"}, id="refuses-strict"),
        pytest.param(Quirks(output="object"), {"output": "object"}, id="holds-to-objects"),
        pytest.param(Quirks(output="none"), {"output": "none"}, id="refuses-output"),
        pytest.param(Quirks(output="none", ignores_output=True), {"output": "none"}, id="ignores-output"),
        pytest.param(Quirks(output="object", ignores_output=True), {"output": "object"}, id="ignores-schemas"),
        pytest.param(Quirks(images=False), {"images": False}, id="refuses-images"),
        pytest.param(Quirks(developer=False), {}, id="refuses-developers"),
        pytest.param(Quirks(window="list"), {"context_tokens": 4096}, id="window-in-the-list"),
        pytest.param(Quirks(window="props"), {"context_tokens": 4096}, id="window-in-the-props"),
        pytest.param(Quirks(thinking="reasoning_content"), {}, id="thinks"),
        pytest.param(Quirks(thinking="reasoning"), {"dialect": "vllm"}, id="thinks-under-another-name"),
        pytest.param(
            Quirks(thinking="reasoning", limit_name="max_completion_tokens"),
            {"dialect": "cerebras"},
            id="thinks-newer-limit",
        ),
        pytest.param(Quirks(key="secret"), {}, id="wants-a-key"),
    ],
)
async def test_what_is_learned_is_the_truth(quirks, differs):
    learned = await learn(quirks, api_key=quirks.key)
    profile = {name: getattr(learned.profile, name) for name in FULL}
    assert profile == {**FULL, **differs}


@pytest.mark.parametrize(
    ("refused", "rules"),
    [
        ({"$ref"}, "bedrock"),
        ({"pattern"}, "gemini_json"),
        ({"const", "pattern", "format"}, "kimi"),
        ({"additionalProperties", "const", "$ref"}, "gemini"),
    ],
)
async def test_words_of_json_schema_that_are_refused_are_found_and_rules_without_them_chosen(refused, rules):
    learned = await learn(Quirks(refused_keywords=frozenset(refused), strict=False))
    told = found(learned, "schema keywords")
    assert set(told.partition(";")[0].removeprefix("refused: ").split(", ")) == refused
    assert learned.profile.schema == rules


async def test_an_endpoint_that_says_how_much_it_reads_only_when_it_was_too_much_is_asked_too_much():
    assert (await learn(Quirks(window="overflow"))).profile.context_tokens is None
    assert (await learn(Quirks(window="overflow"), deep=True)).profile.context_tokens == 4096
    listed = await learn(Quirks(window="list", window_tokens=9999), deep=True)
    assert listed.profile.context_tokens == 9999


async def test_what_was_found_out_is_told_in_words():
    learned = await learn(Quirks(thinking="reasoning_content", images=False, developer=False))
    assert found(learned, "wire") == "openai_chat"
    assert found(learned, "tools") == "native calls"
    assert found(learned, "forced calls") == "yes"
    assert found(learned, "parallel calls") == "yes, and they can be disabled"
    assert found(learned, "thinking") == "shown as reasoning_content"
    assert "does not support image input" in found(learned, "images")
    assert "Unexpected role" in found(learned, "developer role")
    assert found(learned, "context") == "not published; it is learned when a request is too long"


async def test_each_step_is_told_while_it_is_done():
    steps: list[str] = []
    learned = await learn(Quirks(), on_progress=steps.append)
    assert steps[:2] == ["first request", "tool calls"]
    assert len(steps) == learned.requests


async def test_an_endpoint_that_asks_for_patience_gets_it():
    clock = FakeClock(auto=True)
    learned = await learn(Quirks(busy=2), clock=clock)
    assert clock.slept == [3, 3]
    assert learned.profile.tools == "native"


async def test_the_wire_is_found_by_trying():
    quirks = Quirks()
    async with Playback(QuirkyServer(quirks)) as server:
        assert (await probe(f"{server.base_url}/v1", quirks.model)).saved_profile.wire == "openai_chat"


async def test_a_server_of_another_wire_is_found_and_spoken_to_by_it():
    said = {
        "id": "x",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "ready"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }

    def answer(request):
        known = request.path == "/v1/messages" and request.headers.get("x-api-key") == "k"
        return json_reply(said) if known else json_reply({"error": "not found"}, 404)

    async with Playback(answer) as server:
        learned = await probe(f"{server.base_url}/v1", "m", api_key="k")
        learned.save()
        model = open_model(f"{server.base_url}/v1#m", api_key="k")
        events = [event async for event in model.stream(Request(messages=(user("Are you?"),)))]
    assert (learned.saved_profile.wire, learned.profile.streams, learned.profile.tools) == ("anthropic", False, "json")
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "ready"
    assert server.received[-1].path == "/v1/messages"


async def test_an_endpoint_is_not_asked_without_end(monkeypatch):
    monkeypatch.setattr("perdure._models.probe.client.MAX_REQUESTS", 4)
    learned = await learn(Quirks())
    assert learned.requests == 4
    assert found(learned, "requests") == "stopped after 4; what is not listed was not tested"
    assert learned.profile.tools == "native"


async def test_what_is_kept_is_used_when_the_model_is_opened():
    quirks = Quirks(tools="refused", window="list")
    async with Playback(QuirkyServer(quirks)) as server:
        url = f"{server.base_url}/v1"
        learned = await probe(url, quirks.model)
        assert load_profile(url, quirks.model) is None, "a probe writes nothing by itself"
        learned.save()
        assert load_profile(url, quirks.model) == learned.saved_profile
        info = model_info(openai_compatible(url, quirks.model))
    assert (info.context_tokens, info.output) == (4096, "native")


# -- nothing to be learned ---------------------------------------------------------------------------------------------


async def test_a_wrong_key_is_told_as_such_and_not_tried_again():
    async with Playback(QuirkyServer(Quirks(key="right"))) as server:
        with pytest.raises(AuthFailed):
            await probe(f"{server.base_url}/v1", "quirky", wire="openai_chat", api_key="wrong")
    assert [each.method for each in server.received].count("POST") == 1


@pytest.mark.parametrize("status", [404, 405])
async def test_an_address_that_takes_no_requests_of_this_kind_is_asked_once(status):
    refused = Reply(b"no", status, media_type="text/plain", framing="length")
    async with Playback(lambda _: refused) as server:
        with pytest.raises(ConfigError, match="check the base URL"):
            await probe(f"{server.base_url}/v1", "quirky", wire="openai_chat")
    assert [each.method for each in server.received].count("POST") == 1


async def test_thinking_that_is_shown_only_before_a_call_is_found():
    class ThinksBeforeCalls(QuirkyServer):
        def _reply(self, body):
            self.quirks = replace(self.quirks, thinking="reasoning" if tools_of(body) else "")
            return super()._reply(body)

    async with Playback(ThinksBeforeCalls(Quirks())) as server:
        learned = await probe(f"{server.base_url}/v1", "quirky", wire="openai_chat")
    assert found(learned, "thinking") == "shown as reasoning"


async def test_an_address_where_nobody_listens_is_told_as_such():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(NetError, match="cannot connect"):
        await probe(f"http://127.0.0.1:{port}/v1", "any")


async def test_a_model_that_is_not_there_is_told_as_such():
    async with Playback(QuirkyServer(Quirks())) as server:
        with pytest.raises(ConfigError, match=r"does not answer for the model 'absent' .*does not exist"):
            await probe(f"{server.base_url}/v1", "absent")


async def test_a_server_of_something_else_is_told_as_such():
    async with Playback(QuirkyServer(Quirks())) as server:
        with pytest.raises(ConfigError, match="check the base URL, which often ends in /v1"):
            await probe(server.base_url, "quirky", wire="openai_chat")


# -- in words ----------------------------------------------------------------------------------------------------------

REFUSED = "refused (HOST rejected the request (HTTP 400): {}. The request has to be changed; a retry does not help.)"
NO_MORE = "The request has to be changed; a retry does not help."
ALL_FOUND = {
    "wire": "openai_chat",
    "streaming": "yes",
    "usage in streams": "yes",
    "tools": "native calls",
    "forced calls": "yes",
    "parallel calls": "yes, and they can be disabled",
    "schema keywords": (
        "all accepted: $ref, anyOf, type as a list, const, format, pattern, minimum, additionalProperties"
    ),
    "strict tools": "accepted",
    "structured output": "JSON Schema enforced",
    "images": "accepted",
    "developer role": "accepted",
    "context": "not published; it is learned when a request is too long",
    "thinking": "not shown",
    "output limit": "called max_tokens",
}
UNTOLD = dict.fromkeys(["forced calls", "parallel calls", "schema keywords", "strict tools"])
NO_CALLS = {name: None for name in UNTOLD if name != "forced calls"}
OUTPUTS: list[tuple[Literal["object", "none"], str]] = [("object", "any JSON object"), ("none", "no")]
NO_STREAM = {"streaming": "no: it replies at once", "usage in streams": None}


def in_words(learned):
    """What is told about an endpoint, without its port."""
    host = learned.profile.provider
    assert learned.saved_profile.learned == {each.about: each.found for each in learned.findings}
    return {about: told.replace(host, "HOST") for about, told in learned.saved_profile.learned.items()}


@pytest.mark.parametrize(
    ("quirks", "differs", "requests"),
    [
        pytest.param(Quirks(), {}, 10, id="everything"),
        pytest.param(Quirks(streams=False), {**NO_STREAM, "usage": "reported"}, 10, id="answers-at-once"),
        pytest.param(
            Quirks(streams=False, usage=False), {**NO_STREAM, "usage": "not reported"}, 10, id="tells-nothing-at-once"
        ),
        pytest.param(
            Quirks(streams=False, stream_options=False), {**NO_STREAM, "usage": "reported"}, 14, id="refuses-streams"
        ),
        pytest.param(Quirks(stream_options=False), {"usage in streams": "not reported"}, 12, id="no-stream-options"),
        pytest.param(Quirks(usage=False), {"usage in streams": "not reported"}, 10, id="tells-no-usage"),
        pytest.param(
            Quirks(limit_name="max_completion_tokens"),
            {"output limit": "called max_completion_tokens"},
            11,
            id="newer-limit",
        ),
        pytest.param(
            Quirks(tools="refused"),
            {**UNTOLD, "tools": f"{REFUSED.format('tools are not supported by this model')}; JSON tool mode is used"},
            5,
            id="refuses-tools",
        ),
        pytest.param(
            Quirks(tools="ignored"),
            {
                **NO_CALLS,
                "forced calls": "ignored",
                "tools": "no voluntary calls (it answers itself); JSON tool mode is used",
            },
            6,
            id="ignores-tools",
        ),
        pytest.param(
            Quirks(tools="forced"),
            {**NO_CALLS, "tools": "no voluntary calls (only forced ones); JSON tool mode is used"},
            6,
            id="calls-when-forced",
        ),
        pytest.param(
            Quirks(forced=False),
            {"forced calls": REFUSED.format("tool_choice 'required' is not supported")},
            10,
            id="cannot-be-forced",
        ),
        pytest.param(Quirks(parallel=False), {"parallel calls": "one at a time"}, 10, id="one-call"),
        *[
            pytest.param(
                Quirks(parallel_switch=switch), {"parallel calls": "yes, and they cannot be disabled"}, 10, id=switch
            )
            for switch in ("ignored", "refused")
        ],
        pytest.param(
            Quirks(strict=False),
            {"strict tools": REFUSED.replace("refused ", "no ").format('Unknown name "strict"')},
            10,
            id="refuses-strict",
        ),
        *[
            pytest.param(
                Quirks(output=output),
                {"structured output": (f"{told}; a schema is {REFUSED.format('response_format is not supported')}")},
                11,
                id=f"output-{output}",
            )
            for output, told in OUTPUTS
        ],
        *[
            pytest.param(
                Quirks(output=output, ignores_output=True),
                {"structured output": f"{told}; a schema is ignored"},
                11,
                id=f"ignores-{output}",
            )
            for output, told in OUTPUTS
        ],
        pytest.param(
            Quirks(images=False, developer=False),
            {
                "images": REFUSED.format("This model does not support image input"),
                "developer role": REFUSED.format("Unexpected role 'developer'"),
            },
            10,
            id="blind",
        ),
        pytest.param(Quirks(window="list"), {"context": "4096 tokens"}, 10, id="window"),
        pytest.param(Quirks(thinking="reasoning"), {"thinking": "shown as reasoning"}, 10, id="thinks"),
        pytest.param(
            Quirks(refused_keywords=frozenset({"pattern", "const"})),
            {
                "schema keywords": "refused: const, pattern; the rules 'gemini_json' do without",
                "strict tools": "not tested, as some schemas are rejected",
            },
            17,
            id="refuses-keywords",
        ),
    ],
)
async def test_all_that_was_found_out_is_told_in_words(quirks, differs, requests):
    learned = await learn(quirks)
    assert learned.profile.strict_tools is (learned.saved_profile.learned.get("strict tools") == "accepted")
    assert in_words(learned) == {name: told for name, told in {**ALL_FOUND, **differs}.items() if told is not None}
    assert learned.requests == requests


async def test_the_steps_of_a_probe_have_an_order():
    steps: list[str] = []
    learned = await learn(
        Quirks(window="overflow", refused_keywords=frozenset({"$ref"})), deep=True, on_progress=steps.append
    )
    assert [each.about for each in learned.findings] == list(ALL_FOUND)
    assert found(learned, "context") == "4096 tokens, from its error message"
    assert steps == [
        "first request",
        "tool calls",
        "forced tool calls",
        "parallel calls",
        "one call at a time",
        "schema keywords",
        *[f"the keyword {word}" for word in KEYWORDS],
        "output with a schema",
        "images",
        "the developer role",
        "a request that is too long",
    ]


async def test_usage_that_is_reported_without_being_requested_is_told_and_not_asked_for():
    class Talkative(QuirkyServer):
        def _reply(self, body):
            return super()._reply({**body, "stream_options": {}})

    async with Playback(Talkative(Quirks(stream_options=False))) as server:
        learned = await probe(f"{server.base_url}/v1", "quirky", wire="openai_chat")
    assert found(learned, "usage in streams") == "reported without being requested"
    assert learned.profile.usage_in_stream is False


async def test_thinking_in_the_text_is_found():
    class Thinks(QuirkyServer):
        def _text(self, body):
            return f"<think>Hm.</think>{super()._text(body)}"

    async with Playback(Thinks(Quirks())) as server:
        learned = await probe(f"{server.base_url}/v1", "quirky", wire="openai_chat")
    assert found(learned, "thinking") == "shown as <think> in the text"


async def test_calls_with_arguments_that_do_not_fit_are_none():
    class Wrong(QuirkyServer):
        def _calls(self, body):
            calls = super()._calls(body)
            for each in calls:
                each["function"]["arguments"] = '{"words": 1}'
            return calls

    async with Playback(Wrong(Quirks())) as server:
        learned = await probe(f"{server.base_url}/v1", "quirky", wire="openai_chat")
    assert found(learned, "tools") == "no voluntary calls (it answers itself); JSON tool mode is used"


async def test_keywords_that_are_refused_only_together_are_told():
    class Overwhelmed(QuirkyServer):
        def _complaint(self, body):
            many = any(len(each["function"]["parameters"]["properties"]) > 4 for each in tools_of(body))
            return "the schema is too complex" if many else super()._complaint(body)

    async with Playback(Overwhelmed(Quirks())) as server:
        learned = await probe(f"{server.base_url}/v1", "quirky", wire="openai_chat")
    assert in_words(learned)["schema keywords"] == (
        "each accepted, all at once refused "
        f"(HOST rejected the request (HTTP 400): the schema is too complex. {NO_MORE})"
    )
    assert in_words(learned)["strict tools"] == "accepted"


async def test_keywords_that_no_rules_do_without_are_told():
    learned = await learn(Quirks(refused_keywords=frozenset({"type as a list", "anyOf", "minimum"})))
    assert found(learned, "schema keywords") == (
        "refused: anyOf, type as a list, minimum; no rules do without all of them"
    )
    assert found(learned, "strict tools") == "not tested, as some schemas are rejected"
    assert (learned.profile.schema, learned.profile.strict_tools) == ("plain", False)


async def test_an_answer_that_cannot_be_read_is_told_as_such():
    class Garbled(QuirkyServer):
        def _reply(self, body):
            return Reply(b"data: <html>\n\n") if "image_url" in str(body) else super()._reply(body)

    async with Playback(Garbled(Quirks())) as server:
        learned = await probe(f"{server.base_url}/v1", "quirky", wire="openai_chat")
    assert in_words(learned)["images"] == (
        "refused (HOST sent a chunk that is not a JSON object: b'<html>'. Try again.)"
    )
    assert learned.profile.images is False


async def test_a_request_that_breaks_a_known_rule_is_refused_without_being_sent():
    async with Playback([]) as server, aclosing(HttpTransport()) as transport:
        client = ProbeClient(load_wire("openai_chat"), server.base_url, ApiKey(()), transport)
        reply = await client.send_request("nothing", Profile(provider="p", model="m"), assistant([ToolCall("c1", "f")]))
        assert server.received == []
    assert isinstance(reply.error, ProviderRuleError)
    assert not reply.is_accepted
    assert not reply.is_streamed


@pytest.mark.parametrize(("told", "waits"), [("", [5, 5, 5]), ("3", [3, 3, 3]), ("31", [30, 30, 30])])
async def test_a_probe_waits_three_times_as_long_as_it_is_told_within_reason(told, waits):
    steps: list[str] = []
    clock = FakeClock(auto=True)
    headers = {"retry_after": told} if told else {}
    async with Playback(lambda _: json_reply({"error": {"message": "slow down"}}, 429, **headers)) as server:
        with pytest.raises(RateLimited):
            await probe(f"{server.base_url}/v1", "m", wire="openai_chat", clock=clock, on_progress=steps.append)
    assert clock.slept == waits
    assert steps == ["first request", f"rate limited: waiting {waits[0]} s"] * 3


@pytest.mark.parametrize(
    ("schema", "used"),
    [
        ({"type": "object", "properties": {"const": {"type": "string"}, "b": {"pattern": "x"}}}, {"pattern"}),
        (
            {"$defs": {"minimum": {"format": "date"}}, "items": {"anyOf": [{"minimum": 1}]}},
            {"format", "anyOf", "minimum"},
        ),
        ({"enum": [{"pattern": 1}], "default": {"const": 1}}, set()),
        ({"const": {"pattern": "x"}}, {"const"}),
        ({"type": ["string", "null"]}, {"type as a list"}),
        ({"additionalProperties": {"$ref": "#"}}, {"additionalProperties", "$ref"}),
        ("format", set()),
    ],
)
def test_keywords_are_found_where_they_are_keywords(schema, used):
    assert find_used_keywords(schema) == used
    assert find_used_keywords([schema, {}]) == used


def test_the_picture_of_a_probe_is_a_red_square():
    assert build_red_png(2) == (
        b"\x89PNG\r\n\x1a\n"
        b"\x00\x00\x00\rIHDR\x00\x00\x00\x02\x00\x00\x00\x02\x08\x02\x00\x00\x00\xfd\xd4\x9as" + build_red_png(2)[33:]
    )
    data = build_red_png(2)[33:]
    length = int.from_bytes(data[:4])
    assert data[4:8] == b"IDAT"
    assert zlib.decompress(data[8 : 8 + length]) == b"\0\xff\0\0\xff\0\0" * 2
    assert data[8 + length : 12 + length] == zlib.crc32(data[4 : 8 + length]).to_bytes(4)
    assert data[12 + length :] == b"\0\0\0\0IEND\xaeB`\x82"


async def test_another_wire_is_tried_first_with_a_stream_and_then_without():
    bodies = []

    def answer(request):
        bodies.append(request.json())
        return json_reply({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}, 400)

    async with Playback(answer) as server:
        with pytest.raises(ConfigError) as caught:
            await probe(f"{server.base_url}/v1", "m", wire="anthropic")
    host = server.base_url.removeprefix("http://")
    assert [each.get("stream") for each in bodies] == [True, None]
    assert str(caught.value) == (
        f"'{host}' does not answer for the model 'm' ({host} rejected the request (HTTP 400): no. {NO_MORE}): "
        "check the base URL, which often ends in /v1, the name of the model, and the wire"
    )


async def test_an_endpoint_that_knows_the_path_is_asked_by_no_other_wire():
    async with Playback(QuirkyServer(Quirks(key="right"))) as server:
        with pytest.raises(AuthFailed):
            await probe(f"{server.base_url}/v1", "quirky", api_key="wrong")
    assert [each.path for each in server.received] == ["/v1/chat/completions"]


async def test_an_endpoint_that_knows_no_path_is_asked_by_every_wire():
    async with Playback(lambda _: Reply(b"no", 404, media_type="text/plain", framing="length")) as server:
        with pytest.raises(ConfigError, match="does not answer for the model 'm'"):
            await probe(f"{server.base_url}/v1", "m")
    assert [each.path for each in server.received] == ["/v1/chat/completions", "/v1/responses", "/v1/messages"]


@pytest.mark.parametrize(
    ("wire", "options", "sent"),
    [
        ("anthropic", {"key_variable": "A_KEY"}, {"x-api-key": "of the environment"}),
        ("openai_chat", {"key_variable": "A_KEY"}, {"authorization": "Bearer of the environment"}),
        ("openai_responses", {"key_variable": "A_KEY", "api_key": "given"}, {"authorization": "Bearer given"}),
        ("openai_chat", {"key_variable": "NO_SUCH_KEY"}, {}),
        ("openai_chat", {}, {}),
    ],
)
async def test_a_key_is_sent_as_its_wire_expects_it(monkeypatch, wire, options, sent):
    monkeypatch.setenv("A_KEY", "of the environment")
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    transport = CannedTransport(CannedResponse(b"{}", "application/json", 401))
    with pytest.raises(AuthFailed):
        await probe("https://host.example/v1", "m", wire=wire, transport=transport, **options)
    (_, headers, _) = transport.posted[0]
    assert {name: text for name, text in headers.items() if name in {"x-api-key", "authorization"}} == sent
