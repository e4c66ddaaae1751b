"""Requests under an egress policy: what is sent, where redirects lead, and servers that mean harm."""

import asyncio
import gzip
import time

import pytest

from perdure import ConfigError
from perdure._io.http.transport import HostUnreachable, HttpTimeoutExceeded, InvalidResponse, NetError, ResponseCutOff
from perdure.hosts import EgressClient, EgressDenied, EgressPolicy, FetchedResponse
from tests.net.connections import watch_connections
from tests.wire.server import Playback, Received, Reply, each_byte, gzipped

HERE = EgressPolicy(private_networks=["127.0.0.1"], ports=None)
"""A policy that lets tests reach their own servers, and nothing else on this machine."""


async def names_of_tests(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture
async def client():
    made = EgressClient(HERE, look_up=names_of_tests)
    yield made
    await made.aclose()


def plain(text: str, **options) -> Reply:
    return Reply(text.encode(), media_type="text/plain", **options)


def redirect(location: str, status: int = 302) -> Reply:
    return Reply(b"moved", status, {"location": location}, media_type="text/plain")


def named(server: Playback, host: str, path: str = "/") -> str:
    """A URL of a server under a name: the resolver of these tests has the same address for all names."""
    return f"http://{host}:{server.port}{path}"


async def fetch_with(policy: EgressPolicy, url: str, **options) -> FetchedResponse:
    client = EgressClient(policy, look_up=names_of_tests, **options)
    try:
        return await client.fetch(url)
    finally:
        await client.aclose()


# -- what is sent and returned -----------------------------------------------------------------------------------------


async def test_a_page_is_fetched_with_its_status_and_headers(client):
    async with Playback([plain("not here", status=404)]) as server:
        found = await client.fetch(f"{server.base_url}/a?b=c#d", headers={"Accept": "text/html"})
    assert (found.status, found.body, found.headers["content-type"]) == (404, b"not here", "text/plain")
    assert (found.url.url, found.redirects, found.is_truncated) == (f"{server.base_url}/a?b=c", (), False)
    [request] = server.received
    assert (request.method, request.path, request.headers["accept"]) == ("GET", "/a?b=c", "text/html")
    assert request.headers["accept-encoding"] == "gzip"
    assert request.headers["user-agent"].startswith("perdure/")


async def test_a_compressed_page_is_decompressed(client):
    async with Playback([gzipped(b"hello", media_type="text/plain")]) as server:
        assert (await client.fetch(server.base_url)).body == b"hello"


async def test_a_server_gets_the_name_that_was_asked_for(client):
    async with Playback([plain("x")]) as server:
        await client.fetch(named(server, "docs.example.org"))
    assert server.received[0].headers["host"] == f"docs.example.org:{server.port}"


async def test_cookies_are_not_kept(client):
    async with Playback(lambda _: Reply(b"x", headers={"set-cookie": "id=1"})) as server:
        for _ in range(2):
            await client.fetch(server.base_url)
    assert [each.headers.get("cookie") for each in server.received] == [None, None]


async def test_a_connection_is_used_again(client):
    async with Playback(lambda _: plain("x")) as server:
        for _ in range(3):
            await client.fetch(server.base_url)
    assert server.connections == 1


async def test_proxies_of_the_environment_are_not_used(monkeypatch, client):
    async with Playback([plain("direct")]) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        assert (await client.fetch(server.base_url)).body == b"direct"


async def test_a_proxy_that_is_given_is_used_and_urls_are_still_checked():
    async with Playback([plain("by proxy")]) as proxy:
        policy = EgressPolicy(proxy=proxy.base_url, deny_hosts=["evil.example"])
        assert (await fetch_with(policy, "http://example.org/x")).body == b"by proxy"
        for url in (
            "http://evil.example",
            "http://127.0.0.1",
            "http://169.254.169.254",
            "http://localhost",
            "http://a",
        ):
            with pytest.raises(EgressDenied):
                await fetch_with(policy, url)
    assert [each.path for each in proxy.received] == ["http://example.org/x"]


@pytest.mark.parametrize("options", [{"policy": "x"}, {"deadline_seconds": "x"}, {"max_bytes": 0}])
def test_options_that_cannot_work_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        EgressClient(**options)


def test_a_body_may_be_limited_to_one_byte():
    assert EgressClient(max_bytes=1).policy == EgressPolicy()


# -- redirects ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_and_named(client, status):
    async with Playback([redirect("/b", status), redirect("c?d"), plain("there")]) as server:
        found = await client.fetch(f"{server.base_url}/a")
    assert (found.body, found.url.path, found.url.query) == (b"there", "/c", "d")
    assert [each.path for each in found.redirects] == ["/a", "/b"]


async def test_a_redirect_without_a_place_is_an_answer(client):
    async with Playback([Reply(b"moved", 302), Reply(b"choose", 300, {"location": "/x"})]) as server:
        assert (await client.fetch(server.base_url)).body == b"moved"
        assert (await client.fetch(server.base_url)).body == b"choose"


async def test_redirects_have_a_limit(client):
    async with Playback(lambda _: redirect("/again")) as server:
        with pytest.raises(InvalidResponse, match="more than 5 times"):
            await client.fetch(server.base_url)
    assert len(server.received) == 6


async def test_no_redirect_is_followed_if_the_limit_is_none():
    async with Playback(lambda _: redirect("/again")) as server:
        with pytest.raises(InvalidResponse, match="more than 0 times"):
            await fetch_with(EgressPolicy(private_networks=["127.0.0.1"], ports=None, max_redirects=0), server.base_url)
    assert len(server.received) == 1


async def test_what_may_be_secret_is_not_sent_to_another_origin(client):
    secret = {"Authorization": "Bearer x", "Cookie": "id=1", "X-Subscription-Token": "x", "Accept": "text/html"}
    async with Playback([plain("stolen?")]) as thief, Playback([redirect(named(thief, "thief.example"))]) as server:
        await client.fetch(server.base_url, headers=secret)
    assert server.received[0].headers["authorization"] == "Bearer x"
    sent = thief.received[0].headers
    assert {"authorization", "cookie", "x-subscription-token"}.isdisjoint(sent)
    assert sent["accept"] == "text/html"


async def test_another_port_is_another_origin(client):
    async with Playback([plain("stolen?")]) as thief, Playback([redirect(thief.base_url)]) as server:
        await client.fetch(server.base_url, headers={"authorization": "x"})
    assert "authorization" not in thief.received[0].headers


async def test_headers_stay_within_their_origin(client):
    async with Playback([redirect("/b"), plain("x")]) as server:
        await client.fetch(server.base_url, headers={"authorization": "x"})
    assert server.received[1].headers["authorization"] == "x"


async def test_headers_that_were_dropped_do_not_come_back_with_the_first_origin(client):
    async with Playback([redirect("to be told")]) as other:

        def answer(received: Received) -> Reply:
            return plain("x") if received.path == "/back" else redirect(named(other, "other.example"))

        async with Playback(answer) as server:
            other._answering = lambda _: redirect(f"{server.base_url}/back")
            await client.fetch(server.base_url, headers={"authorization": "x"})
    assert ["authorization" in each.headers for each in server.received] == [True, False]


async def test_a_caller_decides_which_redirects_are_followed(client):
    async with Playback([redirect("/b"), redirect("https://other.example/c")]) as server:
        found = await client.fetch(server.base_url, follow=lambda source, target: source.origin == target.origin)
    assert (found.status, found.url.path, found.body) == (302, "/b", b"moved")
    assert found.redirect_to is not None
    assert found.redirect_to.url == "https://other.example/c"


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
        "http://127.0.0.2/",
        "http://10.0.0.1/",
        "http://0x7f000002/",
        "http://user@example.org/",
        "gopher://127.0.0.1:6379/_INFO",
    ],
)
async def test_a_redirect_to_what_is_not_allowed_is_not_followed(client, location):
    async with Playback([redirect(location)]) as server:
        with watch_connections() as connections, pytest.raises(EgressDenied, match="redirects to"):
            await client.fetch(server.base_url)
    assert connections == ["127.0.0.1"]


# -- names -------------------------------------------------------------------------------------------------------------


async def test_a_name_is_looked_up_once_for_a_connection_and_the_answer_is_used():
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    async def rebinding(_host: str, _port: int) -> list[str]:
        return next(answers)

    client = EgressClient(HERE, look_up=rebinding)
    async with Playback([plain("first", framing="close")]) as server:
        with watch_connections() as connections:
            assert (await client.fetch(named(server, "rebind.example"))).body == b"first"
            with pytest.raises(EgressDenied, match="not public"):
                await client.fetch(named(server, "rebind.example"))
    await client.aclose()
    assert connections == ["127.0.0.1"]


async def test_a_name_that_does_not_exist_says_so():
    async def unknown(_host: str, _port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    client = EgressClient(look_up=unknown)
    with pytest.raises(HostUnreachable, match=r"no host 'nowhere\.example"):
        await client.fetch("https://nowhere.example/")
    await client.aclose()


async def test_a_lookup_that_hangs_ends_at_the_deadline():
    async def hanging(_host: str, _port: int) -> list[str]:
        return await asyncio.get_running_loop().create_future()

    client = EgressClient(look_up=hanging, deadline_seconds=0.05)
    with pytest.raises(HttpTimeoutExceeded):
        await client.fetch("https://slow.example/")
    await client.aclose()


# -- servers that mean harm --------------------------------------------------------------------------------------------


async def test_an_endless_body_is_read_up_to_the_limit(client):
    async with Playback([Reply(b"0123456789" * 100, end="repeat")]) as server:
        found = await client.fetch(server.base_url, max_bytes=5_000)
        await server.until(lambda server: server.hung_up == 1)
    assert (len(found.body), found.is_truncated) == (5_000, True)


async def test_a_body_that_drips_ends_at_the_deadline():
    async with Playback([Reply(b"x", end="repeat", pause_seconds=0.01)]) as server:
        began = time.monotonic()
        with pytest.raises(HttpTimeoutExceeded, match=r"within 0\.2 s"):
            await fetch_with(HERE, server.base_url, deadline_seconds=0.2)
        assert time.monotonic() - began < 30
        await server.until(lambda server: server.hung_up == 1)


async def test_a_chain_of_slow_redirects_has_one_deadline():
    async def slow(_: Received) -> Reply:
        await asyncio.sleep(0.1)
        return redirect("/again")

    async with Playback(slow) as server:
        with pytest.raises(HttpTimeoutExceeded):
            await fetch_with(HERE, server.base_url, deadline_seconds=0.25)
    assert len(server.received) < 5


async def test_a_decompression_bomb_costs_no_more_than_the_limit(client):
    bomb = gzip.compress(gzip.compress(b"\0" * 200_000_000, 9), 9)
    layers = gzip.decompress(bomb)
    async with Playback([Reply(layers, headers={"content-encoding": "gzip"})]) as server:
        found = await client.fetch(server.base_url, max_bytes=100_000)
    assert (len(found.body), found.is_truncated) == (100_000, True)


async def test_compression_that_was_not_asked_for_is_refused(client):
    async with Playback([Reply(b"x", headers={"content-encoding": "br"})]) as server:
        with pytest.raises(InvalidResponse, match="not asked for"):
            await client.fetch(server.base_url)


@pytest.mark.parametrize("length", ["100000", "-1", "five", "1e3"])
async def test_a_wrong_content_length_is_noticed(client, length):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\nshort".encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises((ResponseCutOff, InvalidResponse)):
            await client.fetch(f"http://127.0.0.1:{port}/")


async def test_a_flood_of_headers_ends_the_exchange(client):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n")
        try:
            while True:
                writer.write(b"x-flood: " + b"a" * 1_000 + b"\r\n")
                await writer.drain()
        except ConnectionError:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(10):
            with pytest.raises(NetError):
                await client.fetch(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"+PONG\r\n", b"\0" * 100, b"HTTP/9.9 abc\r\n\r\n"])
async def test_what_is_no_http_is_refused(client, answer):
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NetError):
            await client.fetch(f"http://127.0.0.1:{port}/")


async def test_a_response_in_many_pieces_is_whole(client):
    async with Playback(
        [Reply(gzip.compress(b"hello" * 50), headers={"content-encoding": "gzip"}, cuts=each_byte)]
    ) as server:
        assert (await client.fetch(server.base_url)).body == b"hello" * 50
