"""Requests of a login: what is sent, what is taken as an answer, and which addresses are refused."""

import json
from typing import Any

import pytest
from aiohttp import web

from perdure._mcp.login import oauth
from perdure._mcp.login.oauth import LoginFailed, OAuthHttp, build_login_policy, is_loopback
from perdure.mcp import McpServer
from perdure.permissions import UrlTarget

HEADERS = ("accept", "accept-encoding", "content-type", "authorization")


class Endpoint:
    """A server that answers every request in the same way, and notes what it was asked."""

    def __init__(self):
        self.base = ""
        self.answer: Any = {"status": 200, "body": b'{"a": 1}', "headers": {}}
        self.asked = []

    async def handle(self, request):
        sent = {name: request.headers[name] for name in HEADERS if name in request.headers}
        self.asked.append((request.method, request.path_qs, sent, (await request.read()).decode()))
        return web.Response(**self.answer)


@pytest.fixture
async def endpoint():
    made = Endpoint()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
async def http(endpoint):
    made = OAuthHttp(build_login_policy(server_at(endpoint.base)))
    yield made
    await made.aclose()


def server_at(url):
    return McpServer(name="s", transport="http", url=url)


async def test_each_kind_of_request_is_sent_as_its_endpoint_expects(endpoint, http):
    endpoint.answer["headers"] = {"WWW-Authenticate": "Bearer x"}
    assert await http.get_json(f"{endpoint.base}/a?b=c", "it") == {"a": 1}
    assert await http.get_challenge(f"{endpoint.base}/mcp") == (200, "Bearer x")
    assert await http.post_form(f"{endpoint.base}/t", {"x": "1 &"}, {"authorization": "Basic y"}) == (200, {"a": 1})
    assert await http.post_json(f"{endpoint.base}/r", {"n": [1]}, "it") == (200, {"a": 1})
    plain = {"accept-encoding": "identity"}
    form = {"content-type": "application/x-www-form-urlencoded", "authorization": "Basic y"}
    assert endpoint.asked == [
        ("GET", "/a?b=c", {"accept": "application/json", **plain}, ""),
        ("GET", "/mcp", {"accept": "application/json, text/event-stream", **plain}, ""),
        ("POST", "/t", {"accept": "application/json", **plain, **form}, "x=1+%26"),
        ("POST", "/r", {"accept": "application/json", **plain, "content-type": "application/json"}, '{"n":[1]}'),
    ]


@pytest.mark.parametrize("status", [201, 204, 302, 404, 500])
async def test_there_is_a_document_only_with_status_200_and_a_post_reports_its_status(endpoint, http, status):
    endpoint.answer |= {"status": status, "headers": {"Location": f"{endpoint.base}/other"}}
    assert await http.get_json(f"{endpoint.base}/a", "it") is None
    said = None if status == 204 else {"a": 1}
    assert await http.post_form(f"{endpoint.base}/a", {}, {}) == (status, said)
    assert await http.post_json(f"{endpoint.base}/a", {}, "it") == (status, said)
    assert await http.get_challenge(f"{endpoint.base}/a") == (status, "")
    assert len(endpoint.asked) == 4  # no redirect is followed


@pytest.mark.parametrize("body", [b"", b"no json", b"[1]", b"[" * 100_000])
async def test_what_is_no_json_object_is_none(endpoint, http, body):
    endpoint.answer["body"] = body
    assert await http.get_json(f"{endpoint.base}/a", "it") is None
    assert await http.post_json(f"{endpoint.base}/a", {}, "it") == (200, None)


async def test_an_answer_of_the_limit_is_read_and_a_longer_one_is_refused(endpoint, http):
    text = "x" * (256 * 1024 - len('{"a":""}'))
    endpoint.answer["body"] = json.dumps({"a": text}, separators=(",", ":")).encode()
    assert await http.get_json(f"{endpoint.base}/a", "it") == {"a": text}
    endpoint.answer["body"] += b" "
    with pytest.raises(LoginFailed) as caught:
        await http.get_json(f"{endpoint.base}/a", "it")
    assert str(caught.value) == f"{endpoint.base} sends more than a login needs"


async def test_a_server_that_does_not_answer_or_is_not_there_is_reported(endpoint, http, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(oauth, "_SECONDS", 0.0)
        with pytest.raises(LoginFailed) as late:
            await http.get_json(f"{endpoint.base}/a", "it")
    assert str(late.value) == f"{endpoint.base} did not answer in time"
    with pytest.raises(LoginFailed, match=r"^http://127\.0\.0\.1:1 cannot be reached: "):
        await http.get_json("http://127.0.0.1:1/a", "it")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (None, "it is missing"),
        (3, "it is missing"),
        ("http://192.0.2.1/a", "it cannot be used: "),
        ("http://example.org/a", "it cannot be used: http://example.org is not encrypted"),
        ("javascript:alert(1)", "it cannot be used: "),
    ],
)
async def test_an_address_that_is_not_safe_is_refused(url, said, http):
    with pytest.raises(LoginFailed) as caught:
        http.check_url(url, "it")
    assert str(caught.value).startswith(said)


async def test_an_address_that_is_encrypted_or_on_this_machine_may_be_used(http):
    for url in ("https://example.org/a", "http://127.0.0.1:99/a", "http://localhost/a"):
        assert http.check_url(url, "it").url == url


@pytest.mark.parametrize("url", ["https://localhost/x", "https://127.0.0.1/x", "https://[::1]/x"])
async def test_only_a_server_on_this_machine_may_lead_a_login_to_this_machine(url):
    assert is_loopback(UrlTarget.of(url))
    assert not is_loopback(UrlTarget.of("https://example.org/x"))
    local, public = (OAuthHttp(build_login_policy(server_at(each))) for each in (url, "https://example.org/mcp"))
    assert local.check_url("https://127.0.0.1:8443/a", "it").url == "https://127.0.0.1:8443/a"
    assert public.check_url("https://example.com:8443/a", "it").url == "https://example.com:8443/a"
    with pytest.raises(LoginFailed, match=r"^it cannot be used: "):
        public.check_url("https://127.0.0.1:8443/a", "it")
    await local.aclose()
    await public.aclose()
