"""The checks in front of the MCP server, without a network: which requests reach the app."""

import asyncio

import pytest

from perdure import ConfigError
from perdure._mcp.server import http_app
from perdure._mcp.server.http_app import HttpGuard
from perdure.mcp import ClientLimits, ClientTokens, build_app
from perdure.testing import FakeClock
from tests.mcp_server.served_tools import ANN, BOB, TOKENS, WAIT_SECONDS, shout

GOOD = {"host": "127.0.0.1:8808", "authorization": f"Bearer {ANN}", "content-type": "application/json"}


class App:
    """An ASGI app that notes its requests; it answers when it may."""

    def __init__(self):
        self.clients: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.was_cancelled = False
        self._has_client = asyncio.Condition()

    async def wait_for(self, count):
        """Wait until so many requests have arrived."""
        async with self._has_client:
            await asyncio.wait_for(self._has_client.wait_for(lambda: len(self.clients) >= count), WAIT_SECONDS)

    async def __call__(self, scope, receive, send):
        async with self._has_client:
            self.clients.append(scope["client_name"])
            self._has_client.notify_all()
        try:
            await self.may_answer.wait()
            message = await receive()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": message["type"].encode()})
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


def guarded(app, **options):
    return HttpGuard(
        app,
        **{
            "tokens": ClientTokens(TOKENS),
            "hosts": ["127.0.0.1", "example.org:443"],
            "mark_client": lambda scope, client: scope.update(client_name=client),
            **options,
        },
    )


async def status_of(guard, headers=None, *, path="/mcp", method="POST", receive=None, **changes):
    """Send a request, and return the status and the body of the answer."""
    given = headers if headers is not None else list({**GOOD, **changes}.items())
    sent = []

    async def send(message):
        sent.append(message)

    async def one_body():
        return {"type": "http.request", "body": b"{}", "more_body": False}

    raw = [(name.encode(), value.encode("latin-1")) for name, value in given if value is not None]
    await guard({"type": "http", "path": path, "method": method, "headers": raw}, receive or one_body, send)
    return sent[0]["status"], sent[1]["body"].decode()


async def test_a_request_with_a_token_reaches_the_app_as_its_client():
    app = App()
    guard = guarded(app)
    assert await status_of(guard) == (200, "http.request")
    assert await status_of(guard, authorization=f"bearer  {BOB} ") == (200, "http.request")
    assert app.clients == ["ann", "bob"]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"authorization": None}, 401),
        ({"authorization": ""}, 401),
        ({"authorization": f"Basic {ANN}"}, 401),
        ({"authorization": f"Bearer {ANN}x"}, 401),
        ({"authorization": f"Bearer {ANN[:-1]}"}, 401),
        ({"authorization": "Bearer é"}, 401),
        ({"host": None}, 421),
        ({"host": "evil.example:8808"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": "evil.example@127.0.0.1"}, 421),
        ({"host": "127.0.0.1:8808:1"}, 421),
        ({"host": "127.0.0.1/.evil.example"}, 421),
        ({"host": "example.org"}, 421),
        ({"host": "example.org:80"}, 421),
        ({"host": "EXAMPLE.org:443"}, 200),
        ({"host": "127.0.0.1"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:8808"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 200),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/jsonp"}, 415),
        ({"content-type": None}, 415),
        ({"content-type": "application/json; charset=utf-8"}, 200),
        ({"content-length": "99999999999999999999999999"}, 413),
        ({"content-length": "4194305"}, 413),
        ({"content-length": "-1"}, 400),
        ({"x": "y" * 40_000}, 431),
    ],
)
async def test_what_each_header_may_be(changes, status):
    app = App()
    assert (await status_of(guarded(app), **changes))[0] == status
    assert len(app.clients) == (status == 200)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT", "FOO"])
@pytest.mark.parametrize("path", ["/mcp", "/", "/mcp/", "/docs", "/.well-known/x", "//mcp", "/%6dcp"])
async def test_nothing_is_answered_without_a_token(method, path):
    app = App()
    assert (await status_of(guarded(app), method=method, path=path, authorization=None))[0] == 401
    assert app.clients == []


async def test_there_is_only_one_path():
    assert (await status_of(guarded(App()), path="/other"))[0] == 404


async def test_a_header_that_is_there_twice_is_refused():
    for name, value in (("host", "127.0.0.1"), ("authorization", f"Bearer {BOB}"), ("content-type", "text/plain")):
        assert (await status_of(guarded(App()), [*GOOD.items(), (name, value)]))[0] in {401, 415, 421}


async def test_an_origin_that_is_allowed_is_answered():
    guard = guarded(App(), origins=["http://localhost:6274"])
    assert (await status_of(guard, origin="http://localhost:6274"))[0] == 200
    assert (await status_of(guard, origin="http://localhost:6275"))[0] == 403


async def test_no_answer_lets_a_page_of_another_origin_read_it():
    sent = []

    async def send(message):
        sent.append(message)

    guard = guarded(App())
    await guard({"type": "http", "path": "/mcp", "method": "OPTIONS", "headers": [(b"host", b"127.0.0.1")]}, None, send)
    names = {name for name, _ in sent[0]["headers"]}
    assert not [name for name in names if name.startswith(b"access-control")]
    assert b"cross-origin-resource-policy" in names


async def test_a_websocket_is_closed():
    sent = []

    async def send(message):
        sent.append(message)

    await guarded(App())({"type": "websocket", "headers": []}, None, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_a_flood_of_one_client_is_refused_and_others_are_served():
    clock = FakeClock()
    guard = guarded(App(), limits=ClientLimits(requests_per_minute=3), clock=clock)
    assert [(await status_of(guard))[0] for _ in range(5)] == [200, 200, 200, 429, 429]
    assert (await status_of(guard, authorization=f"Bearer {BOB}"))[0] == 200
    await clock.advance(20)
    assert [(await status_of(guard))[0] for _ in range(2)] == [200, 429]


async def test_requests_at_the_same_time_are_limited():
    app = App()
    app.may_answer.clear()
    guard = guarded(app, limits=ClientLimits(requests_at_once=1))
    first = asyncio.create_task(status_of(guard))
    await app.wait_for(1)
    assert (await status_of(guard))[0] == 429
    app.may_answer.set()
    assert (await first)[0] == 200


async def test_a_token_that_is_revoked_ends_the_open_requests_of_its_client_alone():
    app, tokens = App(), ClientTokens(TOKENS)
    app.may_answer.clear()
    guard = guarded(app, tokens=tokens)
    anns = asyncio.create_task(status_of(guard))
    bobs = asyncio.create_task(status_of(guard, authorization=f"Bearer {BOB}"))
    await app.wait_for(2)
    assert tokens.revoke("ann")
    assert not tokens.revoke("ann")
    await asyncio.wait({anns})
    assert app.was_cancelled
    assert not bobs.done()
    app.may_answer.set()
    assert (await bobs)[0] == 200
    assert (await status_of(guard))[0] == 401


async def test_a_guard_that_is_closed_answers_nothing():
    guard = guarded(App())
    guard.close()
    assert (await status_of(guard))[0] == 503


async def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(http_app, "BODY_SECONDS", 0.01)

    async def never():
        await asyncio.Event().wait()

    assert await status_of(guarded(App()), receive=never) == (408, "the body did not arrive in time")


async def test_a_body_that_drips_is_not_waited_for_longer(monkeypatch):
    monkeypatch.setattr(http_app, "BODY_SECONDS", 0.05)

    async def drip():
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def read_all(_scope, receive, send):
        message = await receive()
        while message["type"] == "http.request":
            message = await receive()
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": message["type"].encode()})

    async with asyncio.timeout(WAIT_SECONDS):
        assert await status_of(guarded(read_all), receive=drip) == (408, "the body did not arrive in time")


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_nothing_to_report():
    pieces = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]
    seen = []

    async def leave():
        return pieces.pop(0)

    async def read_all(_scope, receive, _send):
        while True:
            seen.append((await receive())["type"])

    async def send(message):
        raise AssertionError(message)

    headers = [(name.encode(), value.encode()) for name, value in GOOD.items()]
    scope = {"type": "http", "path": "/mcp", "method": "POST", "headers": headers}
    async with asyncio.timeout(WAIT_SECONDS):
        await guarded(read_all)(scope, leave, send)
    assert seen == ["http.request"]


def test_tokens_and_names_that_cannot_be_used_are_refused():
    with pytest.raises(ConfigError, match="needs a token for each client"):
        ClientTokens({})
    with pytest.raises(ConfigError, match="needs a token for each client"):
        build_app([shout], tokens=None)  # type: ignore[arg-type]
    for name in ("", "a/b", "../x", "ä", "x" * 65):
        with pytest.raises(ConfigError, match="1 to 64 letters"):
            ClientTokens({name: ANN})
    for token in ("", "x" * 31, "x" * 40 + " ", "x" * 40 + "\n"):
        with pytest.raises(ConfigError, match="cannot be guessed"):
            ClientTokens({"ann": token})
    with pytest.raises(ConfigError, match="there already"):
        ClientTokens({"ann": ANN, "bob": ANN})


def test_a_token_is_not_kept_or_shown():
    tokens = ClientTokens(TOKENS)
    assert repr(tokens) == "ClientTokens(ann, bob)"
    assert ANN not in repr(vars(tokens))
    assert tokens.find_client("\ud800") is None


def test_limits_are_numbers():
    with pytest.raises(ConfigError, match="calls_per_minute"):
        ClientLimits(calls_per_minute=0)


async def test_an_app_that_was_not_started_says_how_to_start_it():
    app = build_app([shout], tokens=TOKENS)
    with pytest.raises(Exception, match=r"async with app\.lifespan"):
        await status_of(app)


async def test_the_app_follows_the_lifespan_of_its_server():
    app, sent = build_app([shout], tokens=TOKENS), []
    messages: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    has_started = asyncio.Event()

    async def send(message):
        sent.append(message["type"])
        has_started.set()

    task = asyncio.create_task(app({"type": "lifespan"}, messages.get, send))
    messages.put_nowait({"type": "lifespan.startup"})
    await asyncio.wait_for(has_started.wait(), WAIT_SECONDS)
    assert (await status_of(app, accept="application/json, text/event-stream"))[0] == 400
    messages.put_nowait({"type": "lifespan.shutdown"})
    await task
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


FIXED = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


async def exchange(guard, headers=None, *, path="/mcp", method="POST", **changes):
    """Send a request, and return all messages of the answer."""
    sent = []

    async def send(message):
        sent.append(message)

    async def body():
        return {"type": "http.request", "body": b"{}"}

    given = headers if headers is not None else list({**GOOD, **changes}.items())
    raw = [(name.encode(), value.encode()) for name, value in given if value is not None]
    await guard({"type": "http", "path": path, "method": method, "headers": raw}, body, send)
    return sent


@pytest.mark.parametrize(
    ("changes", "status", "said", "more"),
    [
        ({"host": "x"}, 421, "this server has another name", []),
        ({"origin": "http://x"}, 403, "requests of this web page are not answered", []),
        ({"sec-fetch-site": "cross-site"}, 403, "requests of other web pages are not answered", []),
        (
            {"authorization": None},
            401,
            "a valid token is needed: Authorization: Bearer …",
            [(b"www-authenticate", b'Bearer realm="mcp"')],
        ),
        ({"path": "/"}, 404, "there is nothing here: use /mcp", []),
        ({"content-type": None}, 415, "the body has to be application/json", []),
        ({"content-length": "x"}, 400, "content-length is not a number", []),
        ({"content-length": "4194305"}, 413, "the body has more than 4,194,304 bytes", []),
        ({"x": "y" * 32_768}, 431, "the headers are too long", []),
    ],
)
async def test_a_refusal_is_a_whole_answer_that_says_why(changes, status, said, more):
    assert await exchange(guarded(App()), **changes) == refusal(status, said, more)


def refusal(status, said, more=()):
    body = said.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *more,
        *FIXED,
    ]
    return [
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body},
    ]


async def test_an_answer_of_the_app_gets_the_fixed_headers():
    assert await exchange(guarded(App())) == [
        {"type": "http.response.start", "status": 200, "headers": FIXED},
        {"type": "http.response.body", "body": b"http.request"},
    ]


async def test_what_is_refused_for_a_limit_says_which_and_when_to_try_again():
    guard = guarded(App(), limits=ClientLimits(requests_per_minute=1), clock=FakeClock())
    assert (await exchange(guard))[0]["status"] == 200
    said = "this client makes too many requests: try again in 60 s or later"
    assert await exchange(guard) == refusal(429, said, [(b"retry-after", b"1")])
    guard.close()
    assert await exchange(guard) == refusal(503, "the server is shutting down")


async def test_headers_and_a_length_of_the_limit_are_answered():
    used = sum(len(name) + len(value) for name, value in GOOD.items())
    for length, status in ((32_768 - used - 1, 200), (32_768 - used, 431)):
        assert (await exchange(guarded(App()), x="y" * length))[0]["status"] == status
    for digits in ("4194304", "0", "1"):
        assert (await exchange(guarded(App()), **{"content-length": digits}))[0]["status"] == 200
    twice = [*GOOD.items(), ("content-length", "1"), ("Content-Length", "1")]
    assert (await exchange(guarded(App()), twice))[0]["status"] == 400


async def test_only_a_post_needs_json_and_the_names_of_headers_have_any_case():
    for method, status in (("GET", 200), ("DELETE", 200), ("POST", 415)):
        assert (await exchange(guarded(App()), method=method, **{"content-type": None}))[0]["status"] == status
    assert (await exchange(guarded(App()), [(name.title(), value) for name, value in GOOD.items()]))[0]["status"] == 200


async def test_pages_of_other_sites_are_answered_where_an_origin_is_allowed():
    guard = guarded(App(), origins=["HTTP://Localhost:6274"])
    both = {"origin": "http://localhost:6274", "sec-fetch-site": "same-site"}
    assert (await exchange(guard, **both))[0]["status"] == 200
    assert (await exchange(guard, **{**both, "origin": "http://other"}))[0]["status"] == 403


async def test_an_error_of_the_app_is_passed_on_and_leaves_nothing_in_progress():
    async def fail(_scope, _receive, _send):
        raise ZeroDivisionError

    guard = guarded(fail, limits=ClientLimits(requests_at_once=1))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await exchange(guard)


@pytest.mark.parametrize("way", ["gone", "closed"])
async def test_a_request_in_progress_ends_in_the_app_when_its_connection_is_gone_or_the_guard_is_closed(way):
    app = App()
    app.may_answer.clear()
    guard = guarded(app)
    request = asyncio.create_task(status_of(guard))
    await app.wait_for(1)
    if way == "gone":
        request.cancel()
    else:
        guard.close()
    await asyncio.wait({request}, timeout=WAIT_SECONDS)
    assert request.done()
    for _ in range(5):
        await asyncio.sleep(0)
    assert app.was_cancelled
    assert request.cancelled() is (way == "gone")
