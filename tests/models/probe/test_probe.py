"""A probe learns the truth about an endpoint, whatever its quirks, and learns nothing from one that does not answer."""

import socket
from dataclasses import replace

import pytest

from perdure.core.error import AuthFailed, ConfigError
from perdure.core.event import TextDelta
from perdure.core.message import user
from perdure.core.model import Request, model_info
from perdure.models import open_model, openai_compatible
from perdure.models.probe import MAX_REQUESTS, probe
from perdure.models.profile_files import load_profile
from perdure.net.error import NetError
from perdure.testing import FakeClock
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
    monkeypatch.setattr("perdure.models.probe.client.MAX_REQUESTS", 4)
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
