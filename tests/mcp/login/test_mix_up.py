"""Mix-up attacks: a server that means harm lends out the address of another one, to get its codes and tokens."""

import asyncio
import socket
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest
from aiohttp import web

from perdure._mcp.login.oauth import LoginFailed
from perdure.mcp import LoginFile, McpServer, log_in
from tests.mcp.login.protected_server import WAIT_SECONDS, running_protected_server

pytestmark = pytest.mark.packages("mcp")
SECONDS = 10


class Thief:
    """An MCP server with an authorization server that sends people on to the one of somebody else."""

    def __init__(self) -> None:
        self.base = ""
        self.posted: list[tuple[str, str]] = []
        self.client_id = "of the thief"
        self.lends: dict[str, str] = {}
        """What the browser is sent on with, instead of what it came with."""
        self.honest = ""
        self.metadata: dict[str, Any] = {}
        self.registered: dict[str, Any] = {}

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/authorize":
            fields = {**dict(request.query), **self.lends}
            raise web.HTTPFound(f"{self.honest}/authorize?{urlencode(fields)}")
        if request.method == "POST":
            self.posted.append((request.path, await request.text()))
            if request.path == "/register":
                return web.json_response({"client_id": self.client_id, **self.registered}, status=201)
            return web.json_response({"error": "invalid_grant"}, status=400)
        if request.path.startswith("/.well-known/oauth-protected-resource"):
            return web.json_response({"resource": f"{self.base}/mcp", "authorization_servers": [self.base]})
        if request.path == "/.well-known/oauth-authorization-server":
            return web.json_response(
                {
                    "issuer": self.base,
                    "authorization_endpoint": f"{self.base}/authorize",
                    "token_endpoint": f"{self.base}/token",
                    "registration_endpoint": f"{self.base}/register",
                    "code_challenge_methods_supported": ["S256"],
                    **self.metadata,
                }
            )
        return web.Response(status=401)

    @property
    def codes(self) -> list[str]:
        """The codes that were sent to its token endpoint."""
        forms = [dict(parse_qsl(body)) for path, body in self.posted if path == "/token"]
        return [each["code"] for each in forms if "code" in each]


@pytest.fixture
async def thief():
    made = Thief()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
def logins(tmp_path):
    return LoginFile(tmp_path / "logins.json")


class Person:
    """Opens what they are asked to, and follows every redirect, as a browser does."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[Any]] = []
        self.statuses: list[int] = []

    def __call__(self, url: str) -> None:
        self.tasks.append(asyncio.ensure_future(self._follow(url)))

    async def _follow(self, url: str) -> None:
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS, follow_redirects=True, trust_env=False) as http:
            self.statuses.append((await http.get(url)).status_code)


def named(url, name):
    return McpServer(name=name, transport="http", url=url)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def test_a_code_of_another_server_that_says_who_it_is_is_not_exchanged(thief, logins):
    async with running_protected_server() as (url, accounts):
        honest = await log_in(named(url, "honest"), logins, Person(), seconds=SECONDS)
        thief.honest, thief.lends = url.removesuffix("/mcp"), {"client_id": honest.client_id, "resource": url}
        registered = next(iter(accounts.clients.values())).redirect_uris[0]
        with pytest.raises(LoginFailed):
            await log_in(
                named(f"{thief.base}/mcp", "thief"),
                logins,
                Person(),
                port=urlsplit(str(registered)).port or 0,
                seconds=1,
            )
    assert thief.codes == []
    assert set(logins.load()) == {"honest"}


async def test_a_client_that_was_registered_at_another_server_has_no_redirect_for_this_login(thief, logins):
    async with running_protected_server() as (url, accounts):
        accounts.issuer = None  # one that does not say who it is
        port, person = free_port(), Person()
        honest = await log_in(named(url, "honest"), logins, person, port=port, seconds=SECONDS)
        thief.honest, thief.lends = url.removesuffix("/mcp"), {"client_id": honest.client_id, "resource": url}
        with pytest.raises(LoginFailed, match="nobody logged in"):
            await log_in(named(f"{thief.base}/mcp", "thief"), logins, person, port=port, seconds=1)
        await asyncio.gather(*person.tasks)
        assert len(accounts.asked) == 1  # the other server refused before anybody could consent
        assert person.statuses[-1] == 400
    assert thief.codes == []


async def test_two_logins_at_once_take_only_their_own_answers(logins):
    async with running_protected_server() as (one, _), running_protected_server() as (other, _):
        opened: list[str] = []
        first = asyncio.ensure_future(log_in(named(one, "one"), logins, opened.append, seconds=SECONDS))
        second = asyncio.ensure_future(log_in(named(other, "other"), logins, opened.append, seconds=SECONDS))
        async with asyncio.timeout(WAIT_SECONDS):
            while len(opened) < 2:  # noqa: ASYNC110 - nothing says that a page was opened
                await asyncio.sleep(0.01)
        asked = [dict(parse_qsl(urlsplit(each).query)) for each in opened]
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS, trust_env=False) as http:
            for place in (0, 1):
                crossed = {"state": asked[1 - place]["state"], "code": "of the other"}
                assert (await http.get(asked[place]["redirect_uri"], params=crossed)).status_code == 400
            for url in opened:
                assert (await http.get(url, follow_redirects=True)).status_code == 200
        done = {each.url: each.resource for each in await asyncio.gather(first, second)}
    assert done == {one: one, other: other}


async def test_the_token_of_a_login_is_for_the_server_that_was_asked_about(thief, logins):
    """A server that names the authorization server of another one gets tokens for itself alone."""
    async with running_protected_server() as (url, accounts):
        base = url.removesuffix("/mcp")

        async def answer(request: web.Request) -> web.Response:
            return web.json_response({"resource": f"{thief.base}/mcp", "authorization_servers": [f"{base}/"]})

        thief.answer, before = answer, len(accounts.access)
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        thief.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            login = await log_in(named(f"{thief.base}/mcp", "thief"), logins, Person(), scope="use", seconds=SECONDS)
        finally:
            await runner.cleanup()
        assert len(accounts.access) == before + 1
        assert accounts.access[login.access_token].resource == f"{thief.base}/mcp"
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS, trust_env=False) as http:
            headers = {"Authorization": f"Bearer {login.access_token}"}
            assert (await http.post(url, headers=headers, json={})).status_code == 401


async def test_a_flood_of_answers_of_others_does_not_keep_a_person_from_logging_in(logins):
    """Connections that say nothing, endless lines, guesses of the state: whoever is on the machine can send them."""
    async with running_protected_server() as (url, _):
        opened: list[str] = []
        login = asyncio.ensure_future(log_in(named(url, "honest"), logins, opened.append, seconds=SECONDS))
        async with asyncio.timeout(WAIT_SECONDS):
            while not opened:  # noqa: ASYNC110 - nothing says that a page was opened
                await asyncio.sleep(0.01)
        redirect = urlsplit(dict(parse_qsl(urlsplit(opened[0]).query))["redirect_uri"])
        silent = [await asyncio.open_connection("127.0.0.1", redirect.port) for _ in range(150)]
        for place, (_, writer) in enumerate(silent):
            writer.write(b"" if place % 2 else b"GET /" + b"a" * 20_000)
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS, trust_env=False) as http:
            for state in ["", "\u00e9", "0" * 43, "%00", *map(str, range(100))]:
                sent = await http.get(redirect.geturl(), params={"state": state, "code": "of a thief"})
                assert sent.status_code == 400
        await asyncio.gather(Person()._follow(opened[0]))
        assert (await login).url == url
        for _, writer in silent:
            writer.close()


async def test_a_registration_does_not_choose_where_the_answer_goes(thief, logins):
    """The answer to a registration may name other addresses: the person is sent back to this program."""
    thief.registered = {"redirect_uris": ["https://evil.example/callback"], "token_endpoint_auth_method": "none"}
    opened: list[str] = []
    with pytest.raises(LoginFailed, match="nobody logged in"):
        await log_in(named(f"{thief.base}/mcp", "thief"), logins, opened.append, seconds=0.2)
    asked = dict(parse_qsl(urlsplit(opened[0]).query))
    assert urlsplit(asked["redirect_uri"]).hostname == "127.0.0.1"
    assert asked["code_challenge_method"] == "S256"
    assert asked["resource"] == f"{thief.base}/mcp"
