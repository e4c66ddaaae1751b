"""Logins: with the official SDK's authorization server and resource server, and with servers that mean harm."""

import asyncio
import base64
import hashlib
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from aiohttp import web
from msgspec.structs import replace
from pydantic import AnyUrl

from perdure import ConfigError
from perdure._mcp.client.client import StartAndLoginCallbacks
from perdure._mcp.login import file
from perdure._mcp.login.flow import is_expired, refresh_login
from perdure._mcp.login.oauth import LoginFailed, OAuthHttp, build_login_policy
from perdure._mcp.servers import start_process
from perdure.mcp import LoginFile, McpClient, McpError, McpServer, StoredLogin, build_login_resolver, log_in
from perdure.testing import FakeClock
from tests.mcp.login.protected_server import WAIT_SECONDS, running_protected_server

SECONDS = 30


class Browser:
    """A browser that follows the redirect of a login, as a person would who consents."""

    def __init__(self, change: Callable[[str], str] = lambda url: url):
        self.opened: list[str] = []
        self.tasks: list[Any] = []
        self._change = change

    def __call__(self, url):
        self.opened.append(url)
        self.tasks.append(asyncio.ensure_future(self._follow(url)))

    async def _follow(self, url):
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS) as http:
            redirect = await http.get(url)
            return await http.get(self._change(redirect.headers["location"]))


@pytest.fixture
def logins(tmp_path):
    return LoginFile(tmp_path / "home" / "logins.json")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def named(url, name="safe"):
    return McpServer(name=name, transport="http", url=url)


async def test_a_login_is_stored_used_and_refreshed(logins):
    async with running_protected_server() as (url, accounts):
        server, browser = named(url), Browser()
        login = await log_in(server, logins, browser, seconds=SECONDS)
        assert (await asyncio.gather(*browser.tasks))[0].status_code == 200
        asked = accounts.asked[0]
        assert asked.resource == url
        assert asked.scopes == ["use"]
        assert asked.code_challenge
        assert [mode_of(Path(logins.path)), mode_of(Path(logins.path).parent)] == [0o600, 0o700]
        assert logins.get("safe") == login
        assert login.access_token not in repr(login)

        client: Any = McpClient(server, StartAndLoginCallbacks(start_process, build_login_resolver(logins)))
        try:
            assert [each.name for each in (await client.list_tools()).tools] == ["whoami"]
            accounts.access.clear()  # the server does not accept the token any more
            assert (await client.call_tool("whoami", {})).content[0].text == "you"
            assert logins.get("safe").access_token != login.access_token
            accounts.access.clear()
            accounts.refresh.clear()
            with pytest.raises(McpError, match="wants a login"):
                await client.call_tool("whoami", {})
            assert logins.get("safe") is None
        finally:
            await client.close()


async def test_a_token_that_another_process_has_refreshed_is_used(logins):
    async with running_protected_server() as (url, accounts):
        server = named(url)
        login = await log_in(server, logins, Browser(), seconds=SECONDS)
        fresh = accounts.issue(login.client_id, ["use"], url)
        accounts.refresh.pop(login.refresh_token)  # rotated by the other process, which stores the new one just now
        newer = replace(login, access_token=fresh.access_token, refresh_token=fresh.refresh_token)
        logins.store("safe", newer)
        http = OAuthHttp(build_login_policy(server))
        assert await refresh_login("safe", login, logins, http) == newer
        logins.store("safe", login)
        assert await refresh_login("safe", login, logins, http) is None
        assert await refresh_login("safe", replace(login, refresh_token=""), logins, http) is None
        assert logins.load() == {}
        await http.aclose()


async def test_a_refresh_token_is_used_once_however_many_need_a_new_access_token(logins):
    async with running_protected_server() as (url, accounts):
        server = named(url)
        await log_in(server, logins, Browser(), seconds=SECONDS)
        accounts.access.clear()
        clients: list[Any] = [
            McpClient(server, StartAndLoginCallbacks(start_process, build_login_resolver(logins))) for _ in range(3)
        ]
        try:
            listed = await asyncio.gather(*[each.list_tools() for each in clients])
            assert [len(each.tools) for each in listed] == [1, 1, 1]
            assert len(accounts.access) == 1
        finally:
            await asyncio.gather(*[each.close() for each in clients])


async def test_a_refresh_does_not_undo_a_logout_and_waits_for_no_process_that_hangs(logins, monkeypatch):
    async with running_protected_server() as (url, _):
        server = named(url)
        login = await log_in(server, logins, Browser(), seconds=SECONDS)
        http = OAuthHttp(build_login_policy(server))
        assert logins.remove("safe")
        assert await refresh_login("safe", login, logins, http) is None
        assert logins.load() == {}
        await http.aclose()
    monkeypatch.setattr(file, "REFRESH_SECONDS", 0.05)
    async with logins.lock_refresh(), logins.lock_refresh():
        pass


async def test_a_login_is_sent_to_no_other_server(logins):
    async with running_protected_server() as (url, _):
        await log_in(named(url), logins, Browser(), seconds=SECONDS)
        moved = McpServer(name="safe", transport="http", url=url + "/other")
        auth: Any = build_login_resolver(logins)(moved)
        request = httpx2.Request("POST", moved.url)
        flow = auth.async_auth_flow(request)
        sent = await anext(flow)
        await flow.aclose()
        assert "authorization" not in sent.headers
        there: Any = build_login_resolver(logins)(named(url))
        elsewhere = there.async_auth_flow(httpx2.Request("POST", "http://127.0.0.1:1/mcp"))
        assert "authorization" not in (await anext(elsewhere)).headers
        await elsewhere.aclose()


async def test_a_client_that_was_registered_before_is_used(logins):
    async with running_protected_server() as (url, accounts):
        await log_in(named(url), logins, Browser(), seconds=SECONDS, port=0)
        known = next(iter(accounts.clients.values()))
        port = int(str(known.redirect_uris[0]).split(":")[2].split("/")[0])
        known.redirect_uris = [AnyUrl(f"http://127.0.0.1:{port}/callback")]  # as a person registers it
        await log_in(named(url, "again"), logins, Browser(), client_id=known.client_id, port=port, seconds=SECONDS)
        assert len(accounts.clients) == 1
        assert set(logins.load()) == {"safe", "again"}
        assert logins.remove("again")
        assert not logins.remove("again")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda url: url.replace("iss=http", "iss=https"), "another authorization server"),
        (lambda url: url.replace("code=", "none="), "no code"),
        (lambda url: url.replace("code=", "error=access_denied&none="), "refused: 'access_denied'"),
        (lambda url: url.replace("code=", "code=x"), "invalid_grant"),
    ],
)
async def test_an_answer_that_was_changed_is_refused(change, said, logins):
    async with running_protected_server() as (url, _):
        with pytest.raises(LoginFailed, match=said):
            await log_in(named(url), logins, Browser(change), seconds=SECONDS)
    assert logins.load() == {}


class Hostile:
    """An MCP server and authorization server whose documents are given by a test."""

    def __init__(self):
        self.base = ""
        self.documents: dict[str, dict[str, Any]] = {}
        self.posted: list[tuple[str, str]] = []

    async def answer(self, request):
        if request.method == "POST":
            self.posted.append((request.path, await request.text()))
        found = self.documents.get(request.path)
        return web.Response(status=404) if found is None else web.json_response(found)


@pytest.fixture
async def hostile():
    made = Hostile()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    made.documents = {
        "/.well-known/oauth-protected-resource/mcp": {
            "resource": f"{made.base}/mcp",
            "authorization_servers": [made.base],
        },
        "/.well-known/oauth-authorization-server": {
            "issuer": made.base,
            "authorization_endpoint": f"{made.base}/authorize",
            "token_endpoint": f"{made.base}/token",
            "registration_endpoint": f"{made.base}/register",
            "code_challenge_methods_supported": ["S256"],
            "client_id_metadata_document_supported": True,
        },
    }
    yield made
    await runner.cleanup()


RESOURCE = "/.well-known/oauth-protected-resource/mcp"
METADATA = "/.well-known/oauth-authorization-server"


@pytest.mark.parametrize(
    ("path", "changes", "said"),
    [
        (METADATA, {"authorization_endpoint": "javascript:alert(1)"}, "authorization endpoint cannot be used"),
        (METADATA, {"authorization_endpoint": "file:///etc/passwd"}, "authorization endpoint cannot be used"),
        (METADATA, {"authorization_endpoint": "https://x/$(calc)\n"}, "authorization endpoint cannot be used"),
        (METADATA, {"authorization_endpoint": "http://example.org/a"}, "not encrypted"),
        (METADATA, {"authorization_endpoint": None}, "authorization endpoint is missing"),
        (METADATA, {"token_endpoint": "http://169.254.169.254/latest"}, "token endpoint cannot be used"),
        (METADATA, {"token_endpoint": "https://10.0.0.1/token"}, "token endpoint cannot be used"),
        (METADATA, {"registration_endpoint": "https://[fd00:ec2::254]/"}, "registration endpoint cannot be used"),
        (METADATA, {"authorization_endpoint": "https://b.example/?redirect_uri=https://x"}, "parameter 'redirect_u"),
        (METADATA, {"authorization_endpoint": "https://b.example/?a=1&client%5Fid="}, "the parameter 'client_id"),
        (METADATA, {"authorization_endpoint": "https://b.example/?state=1"}, "b.example brings the parameter 'state"),
        (METADATA, {"authorization_endpoint": "https://bank.example/a#"}, "brings a fragment"),
        (METADATA, {"issuer": "https://other.example"}, "that of another issuer"),
        (METADATA, {"code_challenge_methods_supported": ["plain"]}, "does not support PKCE"),
        (METADATA, {"code_challenge_methods_supported": "S256"}, "does not support PKCE"),
        (RESOURCE, {"resource": "https://bank.example/mcp"}, "about another one"),
        (RESOURCE, {"resource": 3}, "about another one"),
        (RESOURCE, {"authorization_servers": []}, "names no authorization server"),
        (RESOURCE, {"authorization_servers": ["http://169.254.169.254/"]}, "authorization server cannot be used"),
        (RESOURCE, {"authorization_servers": ["https://192.168.1.1/"]}, "authorization server cannot be used"),
    ],
)  # fmt: skip
async def test_cve_2025_6514_what_a_server_says_about_its_login_is_checked(path, changes, said, hostile, logins):
    hostile.documents[path] |= changes
    opened: list[str] = []
    with pytest.raises(LoginFailed, match=said):
        await log_in(named(f"{hostile.base}/mcp"), logins, opened.append, seconds=SECONDS)
    assert opened == []


async def test_a_server_without_metadata_says_so(hostile, logins):
    hostile.documents.clear()
    with pytest.raises(LoginFailed, match="does not say how to log in"):
        await log_in(named(f"{hostile.base}/mcp"), logins, print, seconds=SECONDS)


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX-Evil: 1", "a\x00", "\u00fc", 7, None])
async def test_a_token_that_is_no_text_for_a_header_is_refused(token, hostile, logins):
    hostile.documents["/register"] = {"client_id": "c"}
    hostile.documents["/token"] = {"access_token": token, "token_type": "bearer"}
    with pytest.raises(LoginFailed, match="did not return a bearer token"):
        await log_in(named(f"{hostile.base}/mcp"), logins, consenting([], code="x"), seconds=SECONDS)
    assert logins.load() == {}


async def test_a_document_about_the_client_is_preferred_to_a_registration(hostile, logins):
    opened: list[str] = []
    with pytest.raises(LoginFailed, match="nobody logged in"):
        await log_in(
            named(f"{hostile.base}/mcp"),
            logins,
            opened.append,
            metadata_document="https://example.org/client.json",
            seconds=0.01,
        )
    assert "client_id=https%3A%2F%2Fexample.org%2Fclient.json" in opened[0]
    assert hostile.posted == []


async def test_a_registration_that_is_refused_ends_the_login(hostile, logins):
    with pytest.raises(LoginFailed, match="did not register"):
        await log_in(named(f"{hostile.base}/mcp"), logins, print, seconds=SECONDS)
    del hostile.documents[METADATA]["registration_endpoint"]
    with pytest.raises(LoginFailed, match="give its client id"):
        await log_in(named(f"{hostile.base}/mcp"), logins, print, seconds=SECONDS)


async def test_a_public_server_cannot_lead_a_login_to_this_machine(hostile, logins):
    from perdure.hosts import EgressPolicy

    with pytest.raises(LoginFailed, match="not public"):
        await log_in(named(f"{hostile.base}/mcp"), logins, print, policy=EgressPolicy(ports=None), seconds=SECONDS)


async def test_there_is_no_login_to_a_program(logins):
    with pytest.raises(ConfigError, match="nothing to log in to"):
        await log_in(McpServer(name="x", command="x"), logins, print)


async def test_the_redirect_answers_only_what_it_waits_for():
    from perdure._mcp.login.flow import LoopbackRedirect

    async with LoopbackRedirect("1") as redirect, httpx2.AsyncClient(timeout=WAIT_SECONDS) as http:
        assert (await http.get(redirect.url + "x?state=1")).status_code == 404
        assert (await http.post(redirect.url + "?state=1")).status_code == 404
        assert (await http.get(redirect.url + "?state=1", headers={"Host": "evil.example"})).status_code == 421
        assert (await http.get(redirect.url + "?code=1")).status_code == 400
        assert (await http.get(redirect.url + "?state=1&state=2")).status_code == 400
        assert (await http.get(redirect.url + "?state=1&code=2")).status_code == 200
        assert await redirect.wait() == {"state": "1", "code": "2"}
        assert (await http.get(redirect.url + "?state=1&code=3")).status_code == 400


class TokenEndpoint:
    """A token endpoint that answers in one way, and notes what it was asked."""

    def __init__(self, status, answer):
        self.answer = status, answer
        self.asked: list[Any] = []

    async def post_form(self, url, fields, headers):
        self.asked.append((url, dict(fields), dict(headers)))
        return self.answer


STORED = StoredLogin(
    url="https://a.example/mcp",
    resource="https://a.example",
    issuer="https://b.example",
    token_endpoint="https://b.example/token",
    client_id="me:1",
    access_token="old",
    refresh_token="r1",
    scope="use",
)
FIELDS = {"grant_type": "refresh_token", "refresh_token": "r1", "resource": "https://a.example", "client_id": "me:1"}


async def refresh(logins, answer, status=200, login=STORED):
    """Refresh a login; return the new one, what is stored, and what was asked."""
    logins.store("s", login)
    endpoint: Any = TokenEndpoint(status, answer)
    fresh = await refresh_login("s", login, logins, endpoint, FakeClock(1_000.0))
    return fresh, logins.get("s"), endpoint.asked


@pytest.mark.parametrize(
    ("answer", "changes"),
    [
        ({"refresh_token": "r2", "expires_in": 60}, {"refresh_token": "r2", "expires_at": 1_060.0}),
        ({}, {}),
        ({"refresh_token": 7, "expires_in": "60"}, {}),
        ({"refresh_token": "", "expires_in": 0}, {}),
        ({"expires_in": -5, "scope": "more"}, {}),
        ({"expires_in": 10**400}, {"expires_at": 1_000.0 + 315_360_000}),
    ],
)
async def test_a_refreshed_login_has_what_the_endpoint_says_and_keeps_the_rest(answer, changes, logins):
    fresh, stored, asked = await refresh(logins, {"access_token": "new", "token_type": "Bearer", **answer})
    assert fresh == stored == replace(STORED, access_token="new", **changes)
    assert asked == [("https://b.example/token", FIELDS, {})]


async def test_a_client_with_a_secret_shows_it_in_a_header_and_not_in_the_form(logins):
    login = replace(STORED, client_secret="s/1")
    _, _, asked = await refresh(logins, {"access_token": "new", "token_type": "bearer"}, login=login)
    header = "Basic " + base64.b64encode(b"me%3A1:s%2F1").decode()
    assert asked == [("https://b.example/token", FIELDS, {"authorization": header})]


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_client", "unauthorized_client"])
async def test_a_refresh_token_that_is_refused_is_forgotten(error, logins):
    assert (await refresh(logins, {"error": error}, status=400))[:2] == (None, None)


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (400, {"error": "slow_down"}, "the token endpoint answers with HTTP status 400 'slow_down'"),
        (400, {"error": "x" * 200}, f"the token endpoint answers with HTTP status 400 {'x' * 100!r}"),
        (503, None, "the token endpoint answers with HTTP status 503 ''"),
        (200, None, "the token endpoint answers with HTTP status 200 ''"),
        (201, {"access_token": "new", "token_type": "bearer"}, "the token endpoint answers with HTTP status 201 ''"),
        (200, {"access_token": 7, "token_type": "bearer"}, "the token endpoint did not return a bearer token"),
        (200, {"access_token": "new", "token_type": "mac"}, "the token endpoint did not return a bearer token"),
        (200, {"access_token": "new"}, "the token endpoint did not return a bearer token"),
    ],
)
async def test_a_refresh_that_fails_says_why_and_changes_nothing(status, answer, said, logins):
    with pytest.raises(LoginFailed) as caught:
        await refresh(logins, answer, status=status)
    assert (caught.type, str(caught.value)) == (LoginFailed, said)
    assert logins.get("s") == STORED


async def test_a_login_without_a_refresh_token_is_not_refreshed(logins):
    login = replace(STORED, refresh_token="")
    assert await refresh(logins, {}, login=login) == (None, login, [])


async def test_a_document_about_the_client_has_to_be_encrypted(hostile, logins):
    opened: list[str] = []
    with pytest.raises(LoginFailed) as caught:
        await log_in(
            named(f"{hostile.base}/mcp"),
            logins,
            opened.append,
            metadata_document="http://example.org/client.json",
            seconds=SECONDS,
        )
    assert str(caught.value) == "the metadata document 'http://example.org/client.json' needs an https address"
    assert (opened, hostile.posted) == ([], [])


def consenting(opened: list[str], **answer: str) -> Callable[[str], None]:
    """A browser whose person answers so, with the state of the login if nothing else is said; see `opened`."""

    def open_url(url: str) -> None:
        opened.append(url)
        asked = dict(parse_qsl(urlsplit(url).query))
        tasks.append(asyncio.ensure_future(follow(asked["redirect_uri"], {"state": asked["state"], **answer})))

    async def follow(url: str, fields: dict[str, str]) -> None:
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS, trust_env=False) as http:
            await http.get(url, params=fields)

    tasks: list[Any] = []
    return open_url


async def test_a_login_sends_and_stores_what_the_protocol_demands(hostile, logins):
    hostile.documents["/register"] = {"client_id": "c:1", "client_secret": "s/1"}
    hostile.documents["/token"] = {"access_token": "a", "token_type": "Bearer", "refresh_token": "r", "expires_in": 60}
    hostile.documents[METADATA]["authorization_endpoint"] += "?tenant=t"
    opened: list[str] = []
    login = await log_in(
        named(f"{hostile.base}/mcp"),
        logins,
        consenting(opened, code="the code"),
        scope="read write",
        seconds=SECONDS,
        clock=FakeClock(1_000.0),
    )
    registered, exchanged = hostile.posted
    asked = dict(parse_qsl(urlsplit(opened[0]).query))
    redirect_url, state, challenge = (asked.pop(name) for name in ("redirect_uri", "state", "code_challenge"))
    assert opened[0].startswith(f"{hostile.base}/authorize?tenant=t&response_type=code&")
    assert asked == {
        "tenant": "t",
        "response_type": "code",
        "client_id": "c:1",
        "code_challenge_method": "S256",
        "resource": f"{hostile.base}/mcp",
        "scope": "read write",
    }
    assert (registered[0], json.loads(registered[1])) == (
        "/register",
        {
            "client_name": "Perdure",
            "redirect_uris": [redirect_url],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "native",
            "scope": "read write",
        },
    )
    form = dict(parse_qsl(exchanged[1]))
    verifier = form.pop("code_verifier")
    assert base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode() == f"{challenge}="
    assert (len(verifier), len(state)) == (64, 43)
    assert (exchanged[0], form) == (
        "/token",
        {
            "grant_type": "authorization_code",
            "code": "the code",
            "redirect_uri": redirect_url,
            "resource": f"{hostile.base}/mcp",
            "client_id": "c:1",
        },
    )
    assert login == logins.get("safe")
    assert login == StoredLogin(
        url=f"{hostile.base}/mcp",
        resource=f"{hostile.base}/mcp",
        issuer=hostile.base,
        token_endpoint=f"{hostile.base}/token",
        client_id="c:1",
        client_secret="s/1",
        access_token="a",
        refresh_token="r",
        expires_at=1_060.0,
        scope="read write",
    )


async def test_a_login_without_scopes_asks_for_none_and_stores_those_that_were_granted(hostile, logins):
    hostile.documents["/register"] = {"client_id": "c", "client_secret": 7}
    hostile.documents["/token"] = {"access_token": "a", "token_type": "bearer", "scope": "granted"}
    opened: list[str] = []
    login = await log_in(named(f"{hostile.base}/mcp"), logins, consenting(opened, code="x"), seconds=SECONDS)
    assert "scope" not in opened[0]
    assert opened[0].startswith(f"{hostile.base}/authorize?response_type=code&")
    assert "scope" not in json.loads(hostile.posted[0][1])
    assert (login.scope, login.client_secret, login.refresh_token, login.expires_at) == ("granted", "", "", 0.0)


@pytest.mark.parametrize(
    ("sends_issuer", "answer", "said"),
    [
        (True, {"code": "x"}, "the answer comes from another authorization server: None"),
        (False, {"code": "x", "iss": "https://b.example"},
         "the answer comes from another authorization server: 'https://b.example'"),
        (False, {"error": "e" * 101, "error_description": "d" * 201},
         f"the login was refused: {'e' * 100!r} {'d' * 200!r}"),
        (False, {"error": "no", "code": "x"}, "the login was refused: 'no' ''"),
        (False, {"code": ""}, "the answer has no code: try again"),
    ],
)  # fmt: skip
async def test_an_answer_that_cannot_be_trusted_is_not_exchanged(sends_issuer, answer, said, hostile, logins):
    hostile.documents[METADATA]["authorization_response_iss_parameter_supported"] = sends_issuer
    with pytest.raises(LoginFailed) as caught:
        await log_in(named(f"{hostile.base}/mcp"), logins, consenting([], **answer), client_id="mine", seconds=SECONDS)
    assert str(caught.value) == said
    assert hostile.posted == []


@pytest.mark.parametrize("made", [{}, {"client_id": 7}])
async def test_a_registration_without_an_id_is_none(made, hostile, logins):
    hostile.documents["/register"] = made
    with pytest.raises(LoginFailed) as caught:
        await log_in(named(f"{hostile.base}/mcp"), logins, print, seconds=SECONDS)
    assert str(caught.value) == "the authorization server did not register this program (HTTP status 200)"


async def test_a_document_about_the_client_is_of_no_use_where_none_is_taken(hostile, logins):
    hostile.documents[METADATA] |= {"client_id_metadata_document_supported": False, "registration_endpoint": None}
    document = "https://example.org/client.json"
    with pytest.raises(LoginFailed) as caught:
        await log_in(named(f"{hostile.base}/mcp"), logins, print, metadata_document=document, seconds=SECONDS)
    assert str(caught.value) == (
        f"the authorization server {hostile.base!r} registers no clients: register one there, and give its client id"
    )


@pytest.mark.parametrize(("expires_at", "expired"), [(0.0, False), (1_030.0, True), (1_030.5, False), (999.0, True)])
def test_a_token_is_refreshed_half_a_minute_before_it_expires(expires_at, expired):
    assert is_expired(replace(STORED, expires_at=expires_at), FakeClock(1_000.0)) is expired


@pytest.mark.parametrize(("status", "answer"), [(200, {"access_token": "new", "token_type": "bearer"}),
                                                (400, {"error": "invalid_grant"})])  # fmt: skip
async def test_a_login_of_a_person_during_a_refresh_counts(status, answer, logins):
    newer = replace(STORED, access_token="of the person")
    logins.store("s", newer)
    endpoint: Any = TokenEndpoint(status, answer)
    assert await refresh_login("s", STORED, logins, endpoint, FakeClock(1_000.0)) == newer
    assert logins.get("s") == newer


@pytest.mark.parametrize(("status", "answer"), [(200, {"access_token": "new", "token_type": "bearer"}),
                                                (400, {"error": "invalid_grant"})])  # fmt: skip
async def test_a_login_to_another_url_during_a_refresh_is_not_used_for_the_old_one(status, answer, logins):
    logins.store("s", replace(STORED, url="https://other.example/mcp", access_token="of the other server"))
    endpoint: Any = TokenEndpoint(status, answer)
    assert await refresh_login("s", STORED, logins, endpoint, FakeClock(1_000.0)) is None


async def test_the_redirect_of_a_login_is_on_a_free_port(hostile, logins):
    opened: list[str] = []
    for _ in range(2):
        with pytest.raises(LoginFailed) as caught:
            await log_in(named(f"{hostile.base}/mcp"), logins, opened.append, client_id="mine", seconds=0.01)
        assert str(caught.value) == "nobody logged in within 0.01 seconds: try again"
    ports = [urlsplit(dict(parse_qsl(urlsplit(url).query))["redirect_uri"]).port for url in opened]
    assert all(port is not None and port > 1023 for port in ports)
