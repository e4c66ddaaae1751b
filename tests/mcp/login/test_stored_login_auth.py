"""Requests with the token of a stored login: which ones get it, and when it is refreshed."""

import contextlib
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from perdure._mcp.login import auth as stored_login_auth
from perdure._mcp.login.auth import StoredLoginAuth
from perdure._mcp.login.flow import is_expired
from perdure.mcp import LoginFile, McpServer, StoredLogin, build_login_resolver
from perdure.testing import FakeClock

pytestmark = pytest.mark.packages("mcp")
URL = "https://host.example/mcp"
SERVER = McpServer(name="s", transport="http", url=URL)
LOGIN = StoredLogin(
    url=URL,
    resource=URL,
    issuer="https://host.example",
    token_endpoint="https://host.example/token",
    client_id="c",
    access_token="old",
    refresh_token="r",
)


class Refreshes:
    """Stands for the endpoint: it gives another token, or none."""

    def __init__(self, token: str | None = "new") -> None:
        self.used: list[str] = []
        self._token = token

    async def __call__(self, _name: str, login: StoredLogin, *_: Any) -> StoredLogin | None:
        self.used.append(login.access_token)
        return None if self._token is None else replace(login, access_token=self._token)


@pytest.fixture
def logins(tmp_path: Path) -> LoginFile:
    file = LoginFile(tmp_path / "logins.json")
    file.store("s", LOGIN)
    return file


async def tokens_sent(auth: httpx2.Auth, *statuses: int, url: str = URL) -> list[str | None]:
    """Send a request that is answered with these statuses; return the token of each time that it is sent."""
    request = httpx2.Request("POST", url)
    flow = auth.async_auth_flow(request)
    sent = [(await anext(flow)).headers.get("Authorization")]
    for status in statuses:
        try:
            sent.append((await flow.asend(httpx2.Response(status))).headers.get("Authorization"))
        except StopAsyncIteration:
            break
    await flow.aclose()
    return sent


async def test_a_request_is_sent_with_the_token_and_once_more_with_a_new_one_if_it_is_refused(
    logins: LoginFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshes = Refreshes()
    monkeypatch.setattr(stored_login_auth, "refresh_login", refreshes)
    auth = StoredLoginAuth(SERVER, logins)
    assert await tokens_sent(auth, 200) == ["Bearer old"]
    assert await tokens_sent(auth, 403) == ["Bearer old"]
    assert refreshes.used == []
    assert await tokens_sent(auth, 401, 401) == ["Bearer old", "Bearer new"]
    assert refreshes.used == ["old"]


async def test_a_request_that_is_refused_is_not_sent_again_without_a_new_token(
    logins: LoginFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_login_auth, "refresh_login", Refreshes(None))
    assert await tokens_sent(StoredLoginAuth(SERVER, logins), 401) == ["Bearer old"]


@pytest.mark.parametrize(("token", "sent"), [("new", "Bearer new"), (None, "Bearer old")])
async def test_a_token_that_has_expired_is_refreshed_before_it_is_used(
    logins: LoginFile, monkeypatch: pytest.MonkeyPatch, token: str | None, sent: str
) -> None:
    clock = FakeClock()
    logins.store("s", replace(LOGIN, expires_at=clock.now() - 1))
    refreshes = Refreshes(token)
    monkeypatch.setattr(stored_login_auth, "refresh_login", refreshes)
    assert await tokens_sent(StoredLoginAuth(SERVER, logins, clock=clock), 200) == [sent]
    assert refreshes.used == ["old"]


async def test_a_token_that_was_refreshed_or_removed_meanwhile_is_not_refreshed(
    logins: LoginFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshes = Refreshes()
    monkeypatch.setattr(stored_login_auth, "refresh_login", refreshes)
    moved = replace(LOGIN, url="https://other.example/mcp", access_token="of the other server")
    for other, sent in ((replace(LOGIN, access_token="theirs"), ["Bearer theirs"]), (None, []), (moved, [])):
        logins.store("s", LOGIN)
        flow = StoredLoginAuth(SERVER, logins).async_auth_flow(httpx2.Request("POST", URL))
        assert (await anext(flow)).headers["Authorization"] == "Bearer old"
        if other is None:
            logins.remove("s")
        else:
            logins.store("s", other)
        again = []
        with contextlib.suppress(StopAsyncIteration):
            again.append((await flow.asend(httpx2.Response(401))).headers["Authorization"])
        assert again == sent
        await flow.aclose()
    assert refreshes.used == []


@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        (URL, True),
        ("https://host.example/other", True),
        ("https://other.example/mcp", False),
        ("http://host.example/mcp", False),
        ("https://host.example:8443/mcp", False),
    ],
)
async def test_a_token_is_sent_to_the_origin_of_its_server_alone(logins: LoginFile, url: str, is_sent: bool) -> None:
    assert await tokens_sent(StoredLoginAuth(SERVER, logins), 200, url=url) == ["Bearer old" if is_sent else None]


async def test_a_login_of_another_server_or_another_address_of_it_is_not_used(logins: LoginFile) -> None:
    moved = McpServer(name="s", transport="http", url="https://host.example/v2")
    other = McpServer(name="other", transport="http", url=URL)
    for server in (moved, other):
        assert await tokens_sent(StoredLoginAuth(server, logins), 401, url=server.url) == [None]


def test_a_program_has_no_login(logins: LoginFile) -> None:
    find = build_login_resolver(logins)
    assert find(McpServer(name="s", command="x")) is None
    assert isinstance(find(SERVER), StoredLoginAuth)


@pytest.mark.parametrize(("seconds", "expired"), [(0.0, False), (30.1, False), (30.0, True), (-5.0, True)])
def test_a_token_counts_as_expired_a_little_early(seconds: float, expired: bool) -> None:
    clock = FakeClock()
    at = clock.now() + seconds if seconds else 0.0  # 0 if it is not known
    assert is_expired(replace(LOGIN, expires_at=at), clock) is expired
