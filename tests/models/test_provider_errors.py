"""Whatever a provider answers instead of an answer becomes one of our errors, and says what to do."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure import (
    AuthFailed,
    BadRequest,
    ContentRefused,
    ContextOverflow,
    ModelError,
    ProviderDown,
    QuotaSpent,
    RateLimited,
    ReplyCutOff,
)
from perdure._models.provider_errors.classify import classify_error
from perdure._models.provider_errors.response import ParsedError, parse_error_body, parse_wait_field
from tests.wire.recordings import Exchange, recordings


def told(status, body="", headers=None, **more):
    body = body if isinstance(body, (str, bytes)) else json.dumps(body)
    return classify_error(status, headers or {}, body, "acme", **more)


def error(message="", **fields):
    return {"error": {"message": message, **fields}}


# -- which error -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, AuthFailed),
        (402, AuthFailed),
        (403, AuthFailed),
        (404, BadRequest),
        (405, BadRequest),
        (407, AuthFailed),
        (408, ProviderDown),
        (409, ProviderDown),
        (413, ContextOverflow),
        (421, ProviderDown),
        (422, BadRequest),
        (423, ProviderDown),
        (424, ProviderDown),
        (425, ProviderDown),
        (429, RateLimited),
        (451, BadRequest),
        (499, ProviderDown),
        (500, ProviderDown),
        (502, ProviderDown),
        (529, ProviderDown),
        (301, BadRequest),
        (0, ProviderDown),
        (200, ProviderDown),
        (-7, ProviderDown),
        (100_000, ProviderDown),
    ],
)
def test_a_status_without_a_word_is_enough(status, kind):
    assert type(told(status)) is kind


@pytest.mark.parametrize("status", [400, 403, 422, 451])
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (error("Blocked", code="content_filter"), ContentRefused),
        (error("Your credit balance is too low."), AuthFailed),
        (error("Slow down", code="rate_limit_exceeded"), RateLimited),
    ],
)
def test_a_status_that_providers_use_for_many_things_says_nothing_against_a_clear_reason(status, body, kind):
    assert type(told(status, body)) is kind


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        # What cannot pass, under statuses that are used for many things.
        (400, error("API key not valid. Please pass a valid API key.", status="INVALID_ARGUMENT"), AuthFailed),
        (400, error("Your credit balance is too low to access the Anthropic API."), AuthFailed),
        (403, error("The request is prohibited due to a violation of provider Terms Of Service."), ContentRefused),
        (400, error("The response was filtered", code="content_filter"), ContentRefused),
        (400, error("x", innererror={"code": "ResponsibleAIPolicyViolation"}), ContentRefused),
        (400, {"code": "data_inspection_failed", "message": "Input data may be unsuitable"}, ContentRefused),
        (
            400,
            error("Invalid prompt: your prompt was flagged as potentially violating our usage policy"),
            ContentRefused,
        ),
        # Money.
        (429, error("You exceeded your current quota, check your plan", code="insufficient_quota"), AuthFailed),
        (429, error("Insufficient balance or no resource package. Please recharge.", code="1113"), AuthFailed),
        (402, error("You requested up to 65536 tokens, but can only afford 12. Too many tokens"), AuthFailed),
        # A clear status is believed, whatever the words sound like.
        (429, error("Rate limit reached. Add a payment method: see billing", code="rate_limit_exceeded"), RateLimited),
        (429, error("Quota exceeded: 50,000 input tokens per minute, prompt too long"), RateLimited),
        (503, error("invalid api key service unavailable"), ProviderDown),
        (404, error("Not found the model kimi-latest or Permission denied"), BadRequest),
        (401, error("rate limit", code="rate_limit_exceeded"), AuthFailed),
        # Larger than what may be asked in a minute: waiting does not help.
        (413, error("Request too large for model `x` on tokens per minute: Limit 6, Requested 7"), ContextOverflow),
        (429, error("Request too large for gpt-x on tokens per min (TPM): Limit 3, Requested 9."), ContextOverflow),
        # What the model wrote, and its provider could not use.
        (400, error("Failed to call a function.", code="tool_use_failed", failed_generation="{"), ReplyCutOff),
        (400, error("max_tokens is too large: 9. This model supports at most 8 completion tokens"), BadRequest),
    ],
)  # fmt: skip
def test_words_and_codes_refine_what_a_status_leaves_open(status, body, kind):
    assert type(told(status, body)) is kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, ProviderDown),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}, RateLimited),
        ({"type": "error", "error": {"type": "authentication_error", "message": "no"}}, AuthFailed),
        (error("Provider returned error", code=502), ProviderDown),
        (error("Provider returned error", code=429), RateLimited),
        (error("x", code=400, metadata={"raw": '{"error": {"message": "prompt is too long"}}'}), ContextOverflow),
        (error("Tool choice is required", code="tool_use_failed", status_code=400), ReplyCutOff),
        ({"type": "response.failed", "response": {"error": {"code": "insufficient_quota"}}}, AuthFailed),
        ({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "q"}}}, ProviderDown),
        ({"base_resp": {"status_code": 1004, "status_msg": "login fail: check the key"}}, AuthFailed),
        ({"base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}}, ContentRefused),
        ({"throttlingException": {"message": "Too fast"}}, RateLimited),
        ({"validationException": {"message": "no"}}, BadRequest),
        (error("The model `x` does not exist"), BadRequest),
        (error("We are being throttled"), RateLimited),
        (error("the upstream timed out"), ProviderDown),
        (error("nobody has ever seen this"), ProviderDown),
        ('event: error\ndata: {"error": {"code": "invalid_api_key"}}\n\n', AuthFailed),
    ],
)  # fmt: skip
def test_an_error_inside_a_stream_is_judged_by_what_it_says(body, kind):
    assert type(told(0, body)) is type(told(200, body)) is kind


def test_bedrock_names_its_error_in_a_header_alone():
    headers = {"X-Amzn-ErrorType": "ThrottlingException:http://internal.amazon.com/coral/"}
    assert type(told(0, {"message": "Wait."}, headers)) is RateLimited
    assert type(told(400, {"message": "Wait."}, headers)) is RateLimited


# -- what it says ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (error("Over here."), "Over here"),
        ({"error": "as text"}, "as text"),
        ({"detail": "as detail"}, "as detail"),
        ({"detail": [{"loc": ["body", "tools", 0], "msg": "Field required"}]}, "body.tools.0: Field required"),
        ({"object": "error", "message": "flat"}, "flat"),
        ({"Message": "in capitals"}, "in capitals"),
        ([{"error": {"message": "in an array"}}], "in an array"),
        ({"success": False, "errors": [{"code": 1, "message": "one"}, {"message": "two"}]}, "one; two"),
        (error("outer", metadata={"raw": '{"error": "inner"}'}), "outer; inner"),
        (error("Bad schema", param="tools[0].function"), "Bad schema (at tools[0].function)"),
        (error("x", details=[{"fieldViolations": [{"field": "a.b", "description": "c"}]}]), "x; a.b: c"),
        ("upstream connect error\nreset", "upstream connect error reset"),
        ("<html><head><title>502 Bad Gateway</title></head><body>…</body></html>", "502 Bad Gateway"),
        ("<!DOCTYPE html><body><p>Just <b>a moment</b></p>", "Just a moment"),
        ('"a JSON text"', "a JSON text"),
        ({"unheard": {"of": 1}}, '{"unheard": {"of": 1}}'),
        ("{torn", "{torn"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_its_words_are_found_in_any_shape(body, words):
    assert f"(HTTP 500): {words}. Try again" in str(told(500, body))


def test_an_answer_without_a_word_is_said_to_have_none():
    assert str(told(401, b"")) == (
        "acme rejected the API key (HTTP 401), without a reason. Check the key and its permissions."
    )


def test_what_a_response_repeats_of_the_request_is_not_taken_for_its_error():
    body = {"response": {"instructions": "prompt is too long", "error": {"code": "server_error", "message": "Oops"}}}
    failed = told(0, body)
    assert type(failed) is ProviderDown
    assert "too long" not in str(failed)


def test_a_missing_model_and_a_wrong_address_are_told_apart():
    assert "Check the name of the model" in str(told(404, error("The model `gpt-9` does not exist")))
    assert "gpt-9" in str(told(404, error("The model `gpt-9` does not exist")))
    for status in (300, 301, 399, 404, 405, 410):
        assert "Check the base URL" in str(told(status, "page not found"))
    for status in (400, 406, 411):
        assert "The request has to be changed" in str(told(status, "page not found"))


@pytest.mark.parametrize(
    ("said", "secret"),
    [
        ("Incorrect API key provided: sk-proj-abc123def456. You can find", "abc123def456"),
        ("Incorrect API key provided: REDACTED_KEY You can find", "REDACTED_KEY"),
        ("Your api key: ****-key is invalid", "****-key"),
        ("api_key='tgp_v1_Zm9vYmFy' is unknown", "Zm9vYmFy"),
        ("no such key AIzaSyA1234567890abcdef", "SyA1234567890"),
        ("Authorization: Bearer 0123456789ab is not valid", "0123456789ab"),
        ("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc expired", "eyJzdWIi"),
        ("key 0123456789abcdef0123456789abcdef is revoked", "0123456789abcdef"),
    ],
)
def test_a_key_that_the_provider_repeats_is_masked(said, secret):
    assert secret not in str(told(401, error(said)))


@pytest.mark.parametrize(
    "said",
    [
        "The model `meta-llama/llama-4-maverick-17b-128e-instruct` is gone",
        "unknown key 'max_tokens', unexpected token: identifier",
        "tools.0.custom.input_schema.properties: key required_fields",
        "You can find your API key at https://acme.com/api-keys",
    ],
)
def test_what_is_no_key_stays_readable(said):
    assert said in str(told(400, error(said)))


# -- how long the window is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ("This model's maximum context length is 131072 tokens. However, you requested 140000 tokens", 131072),
        ("This endpoint's maximum context length is 163,840 tokens.", 163840),
        ("prompt is too long: 208310 tokens > 200000 maximum", 200000),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease it", 200000),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1048576),
        ("The limit for this model is 288000 tokens: too many tokens", 288000),
        ("the request exceeds the available context size (4096 tokens), try increasing it", 4096),
        ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131072),
        ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32768),
        ("prompt token count of 71298 exceeds the limit of 64000", 64000),
        ("Invalid request: Your request exceeded model token limit: 131072", 131072),
        ("Range of input length should be [1, 129024]", 129024),
        ("Please reduce the length of the messages or completion. Current length is 9105 while limit is 8192", 8192),
        ("The prompt is too long: 278001, model maximum context length: 262143", 262143),
        ("Input tokens exceed the configured limit of 272000 tokens.", 272000),
        ("`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000", 4097),
        ("the model is loaded with context length of only 4096 tokens: input is too long", 4096),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 4096", 4096),
        ("prompt too long; exceeded max context length by 1119046 tokens", None),
        ("Your input exceeds the context window of this model.", None),
        ("context window exceeds limit (2013)", None),
        ("Input is too long for requested model.", None),
        ("The total length of all messages is too long.", None),
    ],
)
def test_a_request_that_is_too_long_tells_the_window(said, tokens):
    failed = told(400, error(said, type="invalid_request_error"))
    assert type(failed) is ContextOverflow
    assert failed.window_tokens == tokens


def test_a_field_for_the_window_is_believed_first():
    body = error("exceeds the available context size", type="exceed_context_size_error", n_ctx=2048, n_prompt_tokens=9)
    failed = told(500, body)
    assert isinstance(failed, ContextOverflow)
    assert failed.window_tokens == 2048


# -- how long to wait --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after": "20", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}, 30),
        ({"retry-after": "Wed, 21 Oct 2015 07:27:00 GMT"}, 0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 -0000"}, 30),
        ({"retry-after": "Wed, 21 Oct 2015 02:28:30 -0500"}, 30),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "99999999999999"}, 86_400),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "9" * 400}, 86_400),
        ({}, None),
    ],
)
def test_a_wait_in_the_headers_is_understood(headers, seconds):
    failed = told(503, "", headers, now=1_445_412_480.0)
    assert failed.retry_after_seconds == seconds


def test_a_date_is_counted_from_the_answers_own_date_when_there_is_no_clock():
    until = {"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}
    assert told(503, "", until).retry_after_seconds is None
    assert told(503, "", until | {"Date": "Wed, 21 Oct 2015 07:28:00 GMT"}).retry_after_seconds == 30


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (error("x", details=[{"@type": "google.rpc.RetryInfo", "retryDelay": "22s"}]), 22),
        (error("x", retry_after=3), 3),
        (error("x", retry_after_ms=1500), 1.5),
        (error("x", retry_after=True), None),
        (error("retry after 7s"), 7),
        (error("retry after 750ms"), 0.75),
        (error("Please try again in 1.5s. Need more?"), 1.5),
        (error("Please try again in 6m0s."), 360),
        (error("Please retry in 1m30.5s."), 90.5),
        (error("try again after 2 minutes"), 120),
        (error("Retry starting from ~1s (header)"), 1),
        (error("Retry-After: 7"), 7),
        (error("wait 30 seconds"), 30),
        (error("Please retry 3 models"), None),
        (error("try again later"), None),
    ],
)
def test_a_wait_in_the_body_is_understood(body, seconds):
    assert told(429, body).retry_after_seconds == seconds


def test_a_quota_that_comes_back_soon_is_waited_for_and_one_of_a_day_is_not():
    said = "You exceeded your current quota, please check your plan and billing details."
    soon = told(429, error(said, details=[{"retryDelay": "22s"}]))
    late = told(429, error(said, details=[{"retryDelay": "82177s"}]))
    assert type(soon) is RateLimited
    assert soon.retryable
    assert type(late) is QuotaSpent
    assert not late.retryable
    assert late.retry_after_seconds == 82177


# -- real ones ---------------------------------------------------------------------------------------------------------

_REPORTED = {
    **dict.fromkeys((400, 404, 422), (BadRequest, ContextOverflow, ReplyCutOff)),
    **dict.fromkeys((401, 402), (AuthFailed,)),
    **dict.fromkeys((403,), (AuthFailed, ContentRefused)),
    **dict.fromkeys((408, 500, 503, 529), (ProviderDown,)),
    429: (RateLimited,),
}


def _failed(exchange: Exchange) -> bool:
    return exchange.status >= 400


_APIS = sorted({each.api for each in recordings()}) or ["none"]


@pytest.mark.wire
@pytest.mark.parametrize("api", _APIS)
def test_every_recorded_error_is_classified(api):
    for recording in recordings(api):
        for exchange in filter(_failed, recording.exchanges):
            failed = classify_error(exchange.status, exchange.headers, exchange.data, exchange.provider)
            assert isinstance(failed, _REPORTED[exchange.status]), exchange.label
            assert str(exchange.status) in str(failed)
            assert exchange.provider in str(failed)
            assert "did not say why" not in str(failed)
            assert isinstance(failed, ContextOverflow) or "context_overflow" not in exchange.features, exchange.label
            if "retry-after" in exchange.headers:
                assert failed.retry_after_seconds is not None


@pytest.mark.wire
@pytest.mark.parametrize(
    ("ending", "kind", "part"),
    [
        ("fd05cd-1", ProviderDown, "Assistant message must have content"),
        ("8e0a45-1", ProviderDown, "Overloaded"),
        ("06ea07-0", ReplyCutOff, "model did not call a tool"),
        ("8f08e0-0", ContextOverflow, "is too long"),
        ("8409c6-0", AuthFailed, "plan and billing"),
        ("0225c6-0", QuotaSpent, "Quota exceeded"),
    ],
)
def test_recorded_errors_of_unusual_shapes_are_classified(ending, kind, part):
    exchanges = [each for recording in recordings() for each in recording.exchanges]
    exchange = next(each for each in exchanges if f"{each.recording}-{each.index}".endswith(ending))
    body = exchange.data
    if exchange.streamed:
        body = next(block for block in body.split(b"\n\n") if b"event: error" in block)
    failed = classify_error(exchange.status, exchange.headers, body, exchange.provider)
    assert type(failed) is kind
    assert part in str(failed)


# -- anything ----------------------------------------------------------------------------------------------------------

_KEYS = st.sampled_from(["error", "message", "code", "status", "details", "retryDelay", "n_ctx", "loc", "msg", "param"])
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)
_TREES = st.recursive(
    _LEAVES, lambda inside: st.lists(inside, max_size=4) | st.dictionaries(_KEYS, inside, max_size=4), max_leaves=20
)
_BODIES = st.binary(max_size=300) | st.text(max_size=300) | _TREES.map(json.dumps)


@given(
    status=st.integers() | st.sampled_from([0, 200, 400, 401, 403, 413, 429, 500]),
    headers=st.dictionaries(st.sampled_from(["retry-after", "Retry-After-MS", "date", "x-amzn-errortype"]), st.text()),
    body=_BODIES,
    now=st.none() | st.floats(0, 1e10),
)
def test_any_answer_becomes_an_error_of_ours_of_bounded_length(status, headers, body, now):
    failed = classify_error(status, headers, body, "acme", now=now)
    assert isinstance(failed, ModelError)
    assert len(str(failed)) < 2_500
    assert str(failed).encode()
    assert "\n" not in str(failed)
    assert failed.retry_after_seconds is None or 0 <= failed.retry_after_seconds <= 86_400


def in_arrays(levels):
    value: object = "Too many lanterns."
    for _ in range(levels):
        value = [value]
    return value


def in_objects(levels):
    value: object = "Too many lanterns."
    for _ in range(levels):
        value = {"error": value}
    return value


def in_exceptions(levels):
    value: object = {"message": "Too many lanterns."}
    for _ in range(levels - 1):
        value = {"LanternException": value}
    return value


@pytest.mark.parametrize(
    ("nest", "deepest"),
    [(in_arrays, 10), (in_objects, 10), (in_exceptions, 10)],
    ids=["arrays", "objects", "exceptions"],
)
def test_a_text_is_found_down_to_the_tenth_level_and_no_deeper(nest, deepest):
    assert parse_error_body(json.dumps(nest(deepest))).text == "Too many lanterns."
    assert parse_error_body(json.dumps(nest(deepest + 1))).text != "Too many lanterns."


def test_json_in_a_text_is_a_level_of_its_own():
    def nest(levels):
        return json.dumps({"message": json.dumps(in_arrays(levels))})

    assert parse_error_body(nest(8)).text == "Too many lanterns."
    assert parse_error_body(nest(9)).text != "Too many lanterns."


@pytest.mark.parametrize(("count", "is_found"), [(297, True), (298, False)])
def test_so_many_values_are_visited_and_no_more(count, is_found):
    body = {"errors": [*[{} for _ in range(count)], "Too many lanterns."]}
    assert (parse_error_body(json.dumps(body)).text == "Too many lanterns.") is is_found


@pytest.mark.parametrize(
    "body",
    [
        b"<html>" + b"<" * 300_000,
        b"{" * 300_000,
        b'{"error":' * 20_000 + b"1" + b"}" * 20_000,
        json.dumps({"errors": [{"message": f"{n} " * 500} for n in range(400)]}).encode(),
        json.dumps(error("retry 1m" * 30_000)).encode(),
        json.dumps(error("api key " * 30_000)).encode(),
        json.dumps(error("a1" * 100_000)).encode(),
        json.dumps(error("context length " * 20_000)).encode(),
        json.dumps(error("violating " * 20_000)).encode(),
        b"\0" * 1_000_000,
    ],
    ids=["tags", "braces", "deep", "many", "waits", "keys", "bare", "windows", "policies", "zeros"],
)
def test_no_answer_takes_long(body):
    started = time.process_time()
    assert isinstance(told(400, body), ModelError)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(("wait", "kind"), [("900", RateLimited), ("901", QuotaSpent)])
def test_a_limit_that_lasts_longer_than_a_quarter_of_an_hour_is_a_quota_that_is_spent(wait, kind):
    error = classify_error(429, {"retry-after": wait}, b"slow down", "acme")
    assert type(error) is kind
    assert error.retry_after_seconds == float(wait)


@pytest.mark.parametrize(("size", "cut"), [(2_000, False), (2_001, True)])
def test_the_words_of_a_provider_are_cut_beyond_so_many_characters(size, cut):
    message = str(classify_error(400, {}, json.dumps({"error": {"message": "x" * size}}), "acme"))
    assert ("…" in message) is cut
    assert message.count("x") == (1_999 if cut else 2_000)


# -- all that is found in a body ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("", ParsedError()),
        ("\ufeff plain\n words \0", ParsedError("plain words")),
        (b"caf\xe9", ParsedError("caf\ufffd")),
        ("7", ParsedError("7")),
        ("{}", ParsedError("{}")),
        ('{"a": 1}', ParsedError('{"a": 1}')),
        (
            {"error": {"message": "No.", "type": "a#Rate_Limit:x", "code": 429, "status": "BAD"}, "status": "503"},
            ParsedError("No.", frozenset({"ratelimit", "bad", "503"}), 503),
        ),
        ({"status": 99, "code": "600", "http_code": 599}, ParsedError(codes=frozenset({"600"}), status=599)),
        ({"code": 100, "message": "a"}, ParsedError("a", status=100)),
        ({"code": 600, "message": "a"}, ParsedError("a")),
        ({"message": "a", "retry_after_ms": 1500}, ParsedError("a", retry_after_seconds=1.5)),
        ({"message": "a", "retryDelay": "2s"}, ParsedError("a", retry_after_seconds=2.0)),
        ({"message": "a", "n_ctx": 4096}, ParsedError("a", window_tokens=4096)),
        ({"message": "a", "n_ctx": 1}, ParsedError("a", window_tokens=1)),
        ({"message": "a", "n_ctx": 0}, ParsedError("a")),
        ({"message": "a", "n_ctx": "4096"}, ParsedError("a")),
        ({"message": "a", "param": "tools[0].x"}, ParsedError("a (at tools[0].x)")),
        ({"message": "a", "param": "tools"}, ParsedError("a")),
        ({"message": "a tools[0]", "param": "tools[0]"}, ParsedError("a tools[0]")),
        ({"message": "a;", "details": ["a", "b", {"title": "c"}]}, ParsedError("a; b; c")),
        ({"metadata": "not text", "data": {"message": "a"}, "request": {"message": "b"}}, ParsedError("a")),
        ({"throttlingException": {"message": "a"}}, ParsedError("a", frozenset({"throttlingexception"}))),
        ({"throttlingException": "a", "message": "b"}, ParsedError("b")),
        ('data: {"message":\ndata:  "a"}', ParsedError("a")),
        ('event: error\ndata: {"message": "a"}\nid: 7', ParsedError("a")),
        ({"message": '{"error": {"message": "a"}}'}, ParsedError("a")),
        ({"message": "[no json"}, ParsedError("[no json")),
        ({"detail": [{"loc": ["body", "tools", 0], "msg": "Required"}]}, ParsedError("body.tools.0: Required")),
        ({"detail": [{"loc": [*range(40)], "msg": "a"}]}, ParsedError(".".join(map(str, range(30))) + ": a")),
        ({"detail": {"field": "x", "description": "a"}}, ParsedError("x: a")),
        ({"detail": {"description": "a"}, "message": "b"}, ParsedError("b")),
        ({"detail": {"msg": "a", "description": "b"}}, ParsedError("a")),
        ({"detail": {"msg": 3, "loc": ["x"]}, "message": "b"}, ParsedError("b")),
        ("<html><head><title> Bad\n Gateway </title><body>x", ParsedError("Bad Gateway")),
        ("<html><title> </title><style>a{}</style><p>It <b>is</b> down", ParsedError("It is down")),
        ("<b>no page</b>", ParsedError("<b>no page</b>")),
    ],
)
def test_all_that_a_body_says_is_found(body, found):
    text = body if isinstance(body, (str, bytes)) else json.dumps(body)
    expected = found if found.text else replace(found, text=text)
    assert parse_error_body(text) == expected


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("sk-abcdef is no key", "sk-*** is no key"),
        ("sk-abcde is no key", "sk-abcde is no key"),
        ("AIzaSyA123456", "AIza***"),
        ("Incorrect API key provided: my_secret1.", "Incorrect API key provided: ***"),
        ("unexpected token: identifier", "unexpected token: identifier"),
        ("token: abcdefg1", "token: ***"),
        ("a" * 31 + "1", "***"),
        ("a" * 30 + "1", "a" * 30 + "1"),
        ("a" * 40, "a" * 40),
        ("1" * 40, "1" * 40),
    ],
)
def test_only_what_looks_like_a_key_is_masked(said, shown):
    assert parse_error_body(said).text == shown


@pytest.mark.parametrize("field", ["retryDelay", "retry_delay", "retry_after", "retryAfter", "retry_after_seconds"])
@pytest.mark.parametrize(("value", "seconds"), [(3, 3.0), ("3", 3.0), ("2m", 120.0), ("1h30m", 5400.0), ([], None)])
def test_a_wait_is_found_under_any_of_its_names(field, value, seconds):
    assert parse_error_body(json.dumps({"message": "a", field: value})) == ParsedError("a", retry_after_seconds=seconds)


@pytest.mark.parametrize(
    ("value", "unit", "seconds"),
    [
        (10**400, 1.0, 86_400.0),
        (86_400, 1.0, 86_400.0),
        (86_401, 1.0, 86_400.0),
        (1500, 0.001, 1.5),
        ("1500", 0.001, 1.5),
        ("2s", 0.001, 2.0),
        (" 7 ", 1.0, 7.0),
        (False, 1.0, None),
        (None, 1.0, None),
        ("soon", 1.0, None),
        ("nan", 1.0, None),
        (-1, 1.0, 0.0),
    ],
)
def test_a_wait_is_a_number_of_a_unit_or_says_its_own(value, unit, seconds):
    assert parse_wait_field(value, unit) == seconds


@pytest.mark.parametrize(
    ("size", "window"),
    [("127", None), ("128", 128), ("32,768", 32_768), ("1_000_000_000", 10**9), ("1,000,000,001", None)],
)
def test_a_window_in_the_text_is_believed_within_reason(size, window):
    failed = told(400, error(f"This model's maximum context length is {size} tokens. However, you requested more."))
    assert isinstance(failed, ContextOverflow)
    assert failed.window_tokens == window


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, error("No."), "acme rejected the API key (HTTP 401): No. Check the key and its permissions."),
        (
            402,
            "",
            (
                "the account at acme has no credit or quota left (HTTP 402), without a reason. "
                "Check its plan and its billing."
            ),
        ),
        (
            429,
            error("Slow!"),
            "acme asks to slow down (HTTP 429): Slow!. Send fewer requests, or request a higher limit.",
        ),
        (
            413,
            "",
            (
                "the request is too long for this model of acme (HTTP 413), without a reason. "
                "Shorten the conversation, or use a model with a larger window."
            ),
        ),
        (500, "", "acme has a server failure (HTTP 500), without a reason. Try again later, or use another model."),
        (
            404,
            error("no page"),
            "acme rejected the request (HTTP 404): no page. Check the base URL and the name of the model.",
        ),
        (
            404,
            error("The model `x` does not exist"),
            (
                "acme rejected the request (HTTP 404): The model `x` does not exist. "
                "Check the name of the model, and that the key may use it."
            ),
        ),
        (
            400,
            error("no"),
            "acme rejected the request (HTTP 400): no. The request has to be changed; a retry does not help.",
        ),
        (0, error("broken"), "acme has a server failure: broken. Try again later, or use another model."),
    ],
)
def test_an_error_says_what_happened_and_what_to_do(status, body, message):
    data = json.dumps(body) if isinstance(body, dict) else body
    assert str(classify_error(status, {}, data, "acme")) == message


def test_a_quota_that_is_spent_says_what_to_do():
    spent = classify_error(429, {"retry-after": "901"}, "", "")
    assert str(spent) == (
        "the quota at the provider is spent (HTTP 429), without a reason. "
        "Wait for the next period, or request a higher quota."
    )
