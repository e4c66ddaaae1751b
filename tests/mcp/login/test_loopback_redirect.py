"""The place to which a browser returns: what it answers, and what it takes for the answer."""

import asyncio
from collections.abc import Mapping

import pytest

from perdure._mcp.login import flow
from perdure._mcp.login.flow import LoopbackRedirect

pytestmark = pytest.mark.packages("mcp")
SECONDS = 30
PAGE = (
    "<!doctype html><meta charset=utf-8><title>Perdure</title>"
    "<p>You can close this page, and return to the terminal.</p>"
)


async def exchange(redirect: LoopbackRedirect, data: bytes) -> bytes:
    """Send these bytes, and return the answer."""
    port = int(redirect.url.split(":")[2].partition("/")[0])
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer


def request(redirect: LoopbackRedirect, target: str, *headers: str, method: str = "GET", host: str = "") -> bytes:
    named = f"Host: {host or redirect.url.split('/')[2]}"
    return "\r\n".join([f"{method} {target} HTTP/1.1", *headers, named, "", ""]).encode()


def status_of(answer: bytes) -> str:
    return answer.partition(b"\r\n")[0].decode().removeprefix("HTTP/1.1 ")


async def test_the_first_answer_counts_and_the_browser_gets_a_page() -> None:
    async with LoopbackRedirect("s") as redirect:
        assert redirect.url.startswith("http://127.0.0.1:")
        assert redirect.url.endswith("/callback")
        waiting: asyncio.Task[Mapping[str, str]] = asyncio.ensure_future(redirect.wait())
        answer = await exchange(redirect, request(redirect, "/callback?state=s&code=c%20d"))
        assert answer.decode() == (
            "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\n"
            f"content-length: {len(PAGE)}\r\ncontent-security-policy: default-src 'none'\r\n"
            "referrer-policy: no-referrer\r\ncache-control: no-store\r\nconnection: close\r\n\r\n" + PAGE
        )
        assert await waiting == {"state": "s", "code": "c d"}
        second = await exchange(redirect, request(redirect, "/callback?state=other"))
        assert status_of(second) == "400 Bad Request"
        assert await redirect.wait() == {"state": "s", "code": "c d"}


@pytest.mark.parametrize(
    ("target", "options", "status"),
    [
        ("/callback?state=s", {"host": "127.0.0.1:1"}, "421 Misdirected Request"),
        ("/callback?state=s", {"host": "evil.example"}, "421 Misdirected Request"),
        ("/other?state=s", {}, "404 Not Found"),
        ("/callback?state=s", {"method": "POST"}, "404 Not Found"),
        ("/callback?code=c", {}, "400 Bad Request"),
        ("/callback?state=other&code=c", {}, "400 Bad Request"),
        ("/callback?state=&code=c", {}, "400 Bad Request"),
        ("/callback?state=%F0%9F%92%A5&code=c", {}, "400 Bad Request"),
        ("/callback?state=s&state=s&code=c", {}, "400 Bad Request"),
        ("/callback?state=a&state=b", {}, "400 Bad Request"),
        ("", {}, "404 Not Found"),
    ],
)
async def test_what_is_no_answer_is_refused(target: str, options: dict[str, str], status: str) -> None:
    async with LoopbackRedirect("s") as redirect:
        answer = await exchange(redirect, request(redirect, target, **options))
        assert status_of(answer) == status
        assert b"content-length: 0\r\n" in answer
        assert answer.endswith(b"\r\n\r\n")
        assert status_of(await exchange(redirect, request(redirect, "/callback?state=s"))) == "200 OK"


@pytest.mark.parametrize(("count", "status"), [(98, "200 OK"), (99, "400 Bad Request")])
async def test_headers_have_a_limit(count: int, status: str) -> None:
    async with LoopbackRedirect("s") as redirect:
        headers = [f"x-{number}: 1" for number in range(count)]
        assert status_of(await exchange(redirect, request(redirect, "/callback?state=s", *headers))) == status


async def test_a_line_that_is_too_long_and_one_that_does_not_come_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LoopbackRedirect("s") as redirect:
        long = await exchange(redirect, b"GET /" + b"x" * 20_000 + b"\r\n\r\n")
        assert status_of(long) == "400 Bad Request"
        monkeypatch.setattr(flow, "_REQUEST_SECONDS", 0.01)
        assert status_of(await exchange(redirect, b"GET")) == "400 Bad Request"


async def test_a_port_can_be_chosen_and_nothing_listens_after_the_block() -> None:
    async with LoopbackRedirect("s") as first:
        port = int(first.url.split(":")[2].partition("/")[0])
        with pytest.raises(OSError, match="in use"):
            async with LoopbackRedirect("s", port):
                pass
        waiting = asyncio.ensure_future(first.wait())
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(ConnectionRefusedError):
        await exchange(first, b"")
    async with LoopbackRedirect("s", port) as second:
        assert second.url == f"http://127.0.0.1:{port}/callback"


async def test_two_logins_at_once_have_ports_of_their_own() -> None:
    async with LoopbackRedirect("s") as first, LoopbackRedirect("s") as second:
        assert first.url != second.url
        assert status_of(await exchange(second, request(second, "/callback?state=s"))) == "200 OK"
        assert await second.wait() == {"state": "s"}
        assert status_of(await exchange(first, request(second, "/callback?state=s"))) == "421 Misdirected Request"


async def test_answers_with_another_state_do_not_end_the_wait() -> None:
    async with LoopbackRedirect("s") as redirect:
        for state in ("x", "", "ss", "S"):
            refused = await exchange(redirect, request(redirect, f"/callback?state={state}&code=forged"))
            assert status_of(refused) == "400 Bad Request"
        assert status_of(await exchange(redirect, request(redirect, "/callback?state=s&code=c"))) == "200 OK"
        assert await redirect.wait() == {"state": "s", "code": "c"}


async def test_a_login_can_have_a_path_of_its_own() -> None:
    async with LoopbackRedirect("s", path="/callback/own") as redirect:
        assert redirect.url.endswith("/callback/own")
        assert status_of(await exchange(redirect, request(redirect, "/callback?state=s"))) == "404 Not Found"
        assert status_of(await exchange(redirect, request(redirect, "/callback/own?state=s"))) == "200 OK"
