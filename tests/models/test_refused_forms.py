"""A request whose history or settings are refused is sent in another form, and no session becomes unusable."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from perdure import Agent, BadRequest, ProviderDown, Settings, tool, user
from perdure._models.endpoint.rejections import MAX_SESSIONS, RefusedForms, find_next_form
from perdure._models.provider_errors.classify import classify_error
from perdure.events import ErrorRaised, ModelEvent, ReplyFinished, ThinkingDelta, ToolCallDelta
from perdure.models import Profile, Request, openai_compatible
from perdure.testing import ScriptedModel, call
from tests.wire.recordings import recordings
from tests.wire.server import Playback, Received, Reply, json_reply, sse

PROFILE = Profile(provider="acme", model="large")
DEEPSEEK = "The `reasoning_content` in the thinking mode must be passed back to the API."
ENCRYPTED = "The encrypted content gAAA...c90= could not be verified."
SIGNATURE = "messages.1.content.0: Invalid `signature` in `thinking` block"


def request(session_id="s", **settings):
    return Request(messages=(user("hi"),), settings=Settings(**settings), session_id=session_id)


def refused(said, status=400):
    return classify_error(status, {}, said, "acme")


MISSING_THINKING = (
    DEEPSEEK,
    "The content[].thinking in the thinking mode must be passed back to the API.",
    "Missing `reasoning_content` field in the assistant message at message index 2.",
    "thinking is enabled but reasoning_content is missing in assistant tool call message at index 7",
    f'data:{{"error":{{"code":"400","message":"Param Incorrect","param":"{DEEPSEEK}","type":""}}}}',
)
STRANGE_THINKING = (
    SIGNATURE,
    "messages.129.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`.",
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
    ENCRYPTED,
    f'{{"error":{{"code":"invalid_encrypted_content","message":"{ENCRYPTED}"}}}}',
    "[invalid_request_error] reasoning `encrypted_content` was not issued to this caller",
    "Item 'rs_0a18' of type 'reasoning' was provided without its required following item.",
    "Thought signature is not valid.",
    "Corrupted thought signature.",
    "'messages.1' : must be satisfied[('messages.1' : property 'reasoning_content' is unsupported)]",
    '{"detail":[{"type":"extra_forbidden","msg":"Extra inputs are not permitted","loc":["body","reasoning_content"]}]}',
)
TOOLS = "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions."
SAMPLING = (
    "Unsupported parameter: 'temperature' is not supported with this model.",
    "Unsupported value: 'temperature' does not support 0.8 with this model. Only the default (1) value is supported.",
    "`temperature` and `top_p` are deprecated for this model.",
)


@pytest.mark.parametrize(
    ("said", "profile", "settings"),
    [
        *[(said, {"needs_reasoning": True}, {}) for said in MISSING_THINKING],
        *[(said, {}, {"echo_reasoning": False}) for said in STRANGE_THINKING],
        (TOOLS, {"thinks_with_tools": False}, {}),
        *[(said, {"sampling": False}, {}) for said in SAMPLING],
    ],
)
def test_what_providers_say_of_a_history_or_a_setting_leads_to_another_form(
    said: str, profile: Mapping[str, Any], settings: Mapping[str, Any]
):
    form = find_next_form(refused(said), request(), PROFILE)
    assert form is not None
    assert form.profile == msgspec.structs.replace(PROFILE, **profile)
    assert form.request.settings == Settings(**settings)
    assert "from now on" in form.notice


@pytest.mark.parametrize(
    "said",
    [
        "",
        "The model `gpt-9` does not exist or you do not have access to it.",
        "Invalid schema for function 'weather': reasoning must be a string.",
        "tools.0.custom.input_schema.type: Field required",
        "prompt is too long: 3333404 tokens > 200000 maximum",
        "Invalid value: 'minimal'. Supported values are: 'low', 'medium', and 'high'.",
        "temperature: must be at most 1",
    ],
)
def test_another_refusal_changes_nothing(said):
    assert find_next_form(refused(said), request(), PROFILE) is None


@pytest.mark.wire
def test_no_recorded_refusal_is_taken_for_one_of_the_history():
    seen = 0
    for scenario in recordings():
        for exchange in scenario.exchanges:
            if exchange.status in {400, 422}:
                seen += 1
                error = classify_error(exchange.status, {}, exchange.data, "acme")
                assert find_next_form(error, request(), PROFILE) is None, scenario
    assert seen > 10


def test_an_error_of_another_kind_is_not_about_the_form():
    assert find_next_form(ProviderDown(DEEPSEEK), request(), PROFILE) is None


def test_each_form_is_tried_once_and_then_the_error_is_the_callers():
    sent, profile = request(), PROFILE
    tried: list[Any] = []
    while (form := find_next_form(BadRequest(DEEPSEEK), sent, profile)) is not None:
        sent, profile = form.request, form.profile
        tried.append((profile.needs_reasoning, sent.settings.thinking))
    assert tried == [(True, None), (True, "off")]


def test_a_session_keeps_its_form_and_others_keep_theirs():
    forms = RefusedForms()

    def refuse_in(session_id):
        form = find_next_form(BadRequest(SIGNATURE), request(session_id), PROFILE)
        assert form is not None
        forms.record_form(form)

    refuse_in("s")
    refuse_in("")
    assert forms.adapt_request(request("s")).settings.echo_reasoning is False
    other, nameless = request("t"), request("")
    assert forms.adapt_request(other) is other
    assert forms.adapt_request(nameless) is nameless
    for number in range(MAX_SESSIONS):
        refuse_in(f"s{number}")
    assert forms.adapt_request(request("s")).settings.echo_reasoning is None


# -- over HTTP ---------------------------------------------------------------------------------------------------------

ANSWER = Reply(
    sse(
        {"choices": [{"index": 0, "delta": {"content": "Nine metres."}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        "[DONE]",
    )
)


@tool(effect="read")
def depth(harbour: str) -> str:
    """How deep a harbour is."""
    return "9 metres"


def replies(received: Received) -> list[Any]:
    return [each for each in received.json()["messages"] if each["role"] == "assistant"]


def refuse(said: str) -> Reply:
    return json_reply({"error": {"message": said, "type": "invalid_request_error"}}, 400)


def a_maker_that_checks(received: Received) -> Reply:
    """As DeepSeek, Kimi and MiMo do: every turn of the assistant has thinking that is not empty."""
    is_whole = all(each.get("reasoning_content") for each in replies(received) if each.get("tool_calls"))
    return ANSWER if is_whole else refuse(DEEPSEEK)


def a_host_that_takes_no_placeholder(received: Received) -> Reply:
    is_off = received.json().get("chat_template_kwargs", {}).get("thinking") is False
    return ANSWER if is_off or not any(each.get("tool_calls") for each in replies(received)) else refuse(DEEPSEEK)


def a_host_that_knows_no_thinking(received: Received) -> Reply:
    is_plain = not any("reasoning_content" in each for each in replies(received))
    return ANSWER if is_plain else refuse("property 'reasoning_content' is unsupported")


async def begun(model: Any = None):
    """A session in which another model, or this one, has called a tool."""
    scripted = ScriptedModel(call("depth", harbour="Oslo"), "Nine metres.", name="first")
    session = Agent(model or scripted, tools=[depth]).session()
    await session.run("How deep is Oslo?")
    return session


def notices(seen: list[Any]) -> list[str]:
    events = [getattr(each, "event", each) for each in seen]
    return [event.message for event in events if isinstance(event, ErrorRaised)]


async def test_a_session_of_another_model_goes_on_at_a_maker_that_checks_thinking():
    events: list[Any] = []
    async with Playback(a_maker_that_checks) as server:
        for name, refusals in (("deepseek-v4-pro", 0), ("kimi-k3", 0), ("mimo-v2.5", 0), ("unknown", 1)):
            session, before = await begun(), len(server.received)
            model = openai_compatible(f"{server.base_url}/v1", name, api_key="k")
            outcome = await session.run("And Rome?", model=model, watchers=[events.append])
            again = await session.run("And Paris?", model=model)
            assert (outcome.text, again.text) == ("Nine metres.", "Nine metres.")
            assert len(server.received) - before == 2 + refusals  # what was learned holds for the second
    assert len(notices(events)) == 1
    assert "get a placeholder" in notices(events)[0]


async def test_where_no_placeholder_is_accepted_thinking_is_switched_off():
    async with Playback(a_host_that_takes_no_placeholder) as server:
        session = await begun()
        model = openai_compatible(f"{server.base_url}/v1", "deepseek-v4-pro", api_key="k")
        assert (await session.run("And Rome?", model=model)).text == "Nine metres."
        assert (await session.run("And Paris?", model=model)).text == "Nine metres."
        assert len(server.received) == 3


async def test_thinking_that_its_own_provider_refuses_is_left_out():
    asks: list[ModelEvent] = [
        ThinkingDelta("I have to look."),
        ToolCallDelta("call_1", "depth", '{"harbour":"Oslo"}'),
        ReplyFinished(provider="acme", model="own"),
    ]
    async with Playback(a_host_that_knows_no_thinking) as server:
        session = await begun(ScriptedModel(asks, "Nine metres."))
        model = openai_compatible(f"{server.base_url}/v1", "own", api_key="k", provider="acme")
        assert (await session.run("And Rome?", model=model)).text == "Nine metres."
        assert (await session.run("And Paris?", model=model)).text == "Nine metres."
        assert len(server.received) == 3


async def test_a_history_that_is_refused_for_good_can_go_on_with_another_model():
    async with Playback(lambda _: refuse(DEEPSEEK)) as server:
        session = await begun()
        model = openai_compatible(f"{server.base_url}/v1", "stubborn", api_key="k")
        for _ in range(2):
            outcome = await session.run("And Rome?", model=model)
            assert isinstance(outcome.error, BadRequest)
        asked = len(server.received)
        assert asked <= 4  # the request as it is, and each other form once
        assert (await session.run("And Rome?", model=ScriptedModel("Two.", name="another"))).text == "Two."


async def test_a_deployment_whose_name_does_not_tell_its_model_learns_what_it_refuses():
    def azure(received: Received) -> Reply:
        body = received.json()
        if "temperature" in body:
            return refuse(SAMPLING[0])
        if body.get("reasoning_effort") != "none":
            return refuse(TOOLS)
        return ANSWER

    async with Playback(azure) as server:
        model = openai_compatible(f"{server.base_url}/v1", "prod", api_key="k", profile={"dialect": "azure"})
        agent = Agent(model, tools=[depth], settings=Settings(temperature=0.2))
        assert (await agent.run("How deep?")).text == "Nine metres."
        assert len(server.received) == 3
        assert (await agent.run("How deep?")).text == "Nine metres."
        assert len(server.received) == 4
