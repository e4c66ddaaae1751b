"""The egress proxy: who may use it, where it connects to, and when it closes a connection."""

import asyncio
import contextlib
from base64 import b64encode
from typing import Any

import pytest

from perdure import ConfigError
from perdure.hosts import EgressPolicy, EgressProxy, ProxyLimits
from tests.net.connections import watch_connections
from tests.wire.server import Playback, Reply

HERE = EgressPolicy(private_networks=["127.0.0.1"], ports=None)
SECONDS = 20


async def talk(proxy: EgressProxy, head: str, body: bytes = b"", *, password: str | None = None) -> bytes:
    """Send a request to the proxy, and return all that comes back."""
    port = int(proxy.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    token = b64encode(f"{proxy.username}:{proxy.password if password is None else password}".encode()).decode()
    writer.write(f"{head}\r\nProxy-Authorization: Basic {token}\r\n\r\n".encode() + body)
    async with asyncio.timeout(SECONDS):
        answer = await reader.read()
    writer.close()
    return answer


@contextlib.asynccontextmanager
async def open_tunnel(proxy: EgressProxy, place: str):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
    token = b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    writer.write(f"CONNECT {place} HTTP/1.1\r\nProxy-Authorization: Basic {token}\r\n\r\n".encode())
    async with asyncio.timeout(SECONDS):
        yield (await reader.readuntil(b"\r\n\r\n")).decode(), reader, writer
    writer.close()


async def test_a_plain_request_is_passed_on_without_the_password():
    async with (
        Playback([Reply(b"hello", framing="close", media_type="text/plain")]) as server,
        EgressProxy(HERE) as proxy,
    ):
        place = f"127.0.0.1:{server.port}"
        head = f"POST http://{place}/a?b=c HTTP/1.1\r\nHost: evil.example\r\nX-Own: 1\r\nContent-Length: 3"
        answer = await talk(proxy, head, b"abcGET http://10.0.0.1/ HTTP/1.1\r\n\r\n")
    assert answer.endswith(b"hello")
    assert b"\r\nConnection: close\r\n" in answer
    [received] = server.received
    assert (received.method, received.path, received.body) == ("POST", "/a?b=c", b"abc")
    assert (received.headers["host"], received.headers["x-own"]) == (place, "1")
    assert "proxy-authorization" not in received.headers
    assert proxy.connection_count == 1


async def test_a_tunnel_carries_bytes_both_ways():
    async with (
        Playback([Reply(b"hello", framing="close", media_type="text/plain")]) as server,
        EgressProxy(HERE) as proxy,
        open_tunnel(proxy, f"127.0.0.1:{server.port}") as (head, reader, writer),
    ):
        assert head.startswith("HTTP/1.1 200")
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.readuntil(b"hello")


async def test_without_the_password_nothing_is_connected_to():
    async with EgressProxy(HERE) as proxy:
        with watch_connections() as connections:
            answer = await talk(proxy, "CONNECT 127.0.0.1:9 HTTP/1.1", password="wrong")
    assert answer.startswith(b"HTTP/1.1 407")
    assert b"Proxy-Authenticate: Basic" in answer
    assert connections == ["127.0.0.1"]  # our own, to the proxy


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("CONNECT 127.0.0.1:443", "not public"),
        ("CONNECT 169.254.169.254:80", "never allowed"),
        ("CONNECT [::1]:443", "not public"),
        ("CONNECT example.org:22", "port 22"),
        ("CONNECT private.example:443", "not public"),
        ("GET http://10.0.0.1/", "not public"),
        ("GET http://0x7f000001/", "not public"),
        ("GET http://private.example/", "not public"),
    ],
)
async def test_what_is_not_public_is_denied_and_noted(line, reason):
    async def look_up(_host: str, _port: int) -> tuple[str, ...]:
        return ("93.184.216.34", "10.0.0.1")

    async with EgressProxy(look_up=look_up) as proxy:
        with watch_connections() as connections:
            answer = await talk(proxy, f"{line} HTTP/1.1")
    assert answer.startswith(b"HTTP/1.1 403")
    assert connections == ["127.0.0.1"]
    [denial] = proxy.list_denials()
    assert reason in denial.reason
    assert proxy.list_denials(proxy.denial_count) == []


async def test_the_connection_goes_to_the_address_that_was_checked():
    answers = iter([("127.0.0.1",), ("10.0.0.1",)])

    async def rebinding(_host: str, _port: int) -> tuple[str, ...]:
        return next(answers)

    async with (
        Playback(lambda _: Reply(b"x", framing="close")) as server,
        EgressProxy(HERE, look_up=rebinding) as proxy,
    ):
        first, second = [await talk(proxy, f"GET http://a.example:{server.port}/ HTTP/1.1") for _ in range(2)]
    assert first.startswith(b"HTTP/1.1 200")
    assert second.startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("nonsense", 400),
        ("GET /path HTTP/1.1", 400),
        ("GET https://example.org/ HTTP/1.1", 400),
        ("CONNECT a@example.org:443 HTTP/1.1", 400),
        ("POST http://127.0.0.1:PORT/ HTTP/1.1\r\nTransfer-Encoding: chunked", 411),
        ("POST http://127.0.0.1:PORT/ HTTP/1.1\r\nContent-Length: x", 400),
        ("POST http://127.0.0.1:PORT/ HTTP/1.1\r\nContent-Length: 9000", 413),
        ("GET http://nowhere.example/ HTTP/1.1", 502),
        ("GET http://127.0.0.1:1/ HTTP/1.1", 502),
    ],
)
async def test_a_request_that_cannot_be_served_gets_an_error(head, status):
    async def find_nothing(_host: str, _port: int) -> tuple[str, ...]:
        raise OSError("no such name")

    limits = ProxyLimits(max_upload_bytes=1_000)
    async with Playback([]) as server, EgressProxy(HERE, look_up=find_nothing, limits=limits) as proxy:
        answer = await talk(proxy, head.replace("PORT", str(server.port)))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert server.received == []


async def test_a_tunnel_ends_at_the_limit_of_what_may_be_sent():
    limits = ProxyLimits(max_upload_bytes=100_000)
    async with (
        Playback(lambda _: Reply(b"", end="stall", headless=True)) as server,
        EgressProxy(HERE, limits=limits) as proxy,
        open_tunnel(proxy, f"127.0.0.1:{server.port}") as (_, reader, writer),
    ):
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                writer.write(b"x" * 10_000)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""


async def test_a_tunnel_ends_at_the_limit_of_what_may_be_received():
    limits = ProxyLimits(max_download_bytes=100_000)
    endless = Reply(b"x" * 50_000, end="repeat")
    async with Playback([endless]) as server, EgressProxy(HERE, limits=limits) as proxy:
        answer = await talk(proxy, f"GET http://127.0.0.1:{server.port}/ HTTP/1.1")
    assert len(answer) <= 100_000


async def test_an_idle_tunnel_is_closed():
    limits = ProxyLimits(idle_seconds=0.05)
    async with (
        Playback([]) as server,
        EgressProxy(HERE, limits=limits) as proxy,
        open_tunnel(proxy, f"127.0.0.1:{server.port}") as (_, reader, _writer),
    ):
        assert await reader.read() == b""


async def test_a_tunnel_is_closed_when_its_time_is_over():
    limits = ProxyLimits(max_seconds=0.5)
    async with (
        Playback([]) as server,
        EgressProxy(HERE, limits=limits) as proxy,
        open_tunnel(proxy, f"127.0.0.1:{server.port}") as (_, reader, _writer),
    ):
        assert await reader.read() == b""


async def test_there_are_not_more_connections_than_the_limit():
    async with (
        Playback([]) as server,
        EgressProxy(HERE, limits=ProxyLimits(max_connections=1)) as proxy,
        open_tunnel(proxy, f"127.0.0.1:{server.port}"),
    ):
        assert (await talk(proxy, "CONNECT 127.0.0.1:9 HTTP/1.1")).startswith(b"HTTP/1.1 503")


async def test_closing_ends_open_tunnels_and_may_be_done_twice():
    async with Playback([]) as server:
        proxy = EgressProxy(HERE)
        await proxy.start()
        async with open_tunnel(proxy, f"127.0.0.1:{server.port}") as (_, reader, _writer):
            await proxy.aclose()
            await proxy.aclose()
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        with pytest.raises(RuntimeError, match="not started"):
            _ = proxy.url


def test_bad_options_are_refused():
    with pytest.raises(ConfigError, match="without proxy="):
        EgressProxy(EgressPolicy(proxy="http://proxy.example:3128"))
    with pytest.raises(ConfigError, match="idle_seconds"):
        ProxyLimits(idle_seconds="soon")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_connections"):
        ProxyLimits(max_connections=0)


class RawHost:
    """A host that notes all bytes of each connection, and sends these when the first have arrived."""

    def __init__(self, answer: bytes = b"", *, reads_to_end: bool = False) -> None:
        self.answer = answer
        self.reads_to_end = reads_to_end
        self.received: list[bytes] = []
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = b"" if self.reads_to_end else await reader.read(100_000)
        writer.write(self.answer)
        if self.reads_to_end:
            first += await reader.read()
            writer.write(b"<end>")
        self.received.append(first)
        writer.close()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()


async def test_the_whole_head_of_a_plain_request_and_of_its_response_is_as_it_should_be():
    answer = (
        b"HTTP/1.1 100 Continue\r\nConnection: keep-alive\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
        b"HTTP/1.1 201 Created\r\nX-A: 1\r\nConnection : keep-alive\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\n"
        b"Upgrade: h2c\r\nX-B: 2\r\n\r\nbody\r\n\r\nend"
    )
    async with RawHost(answer) as host, EgressProxy(HERE) as proxy:
        head = (
            f"get http://127.0.0.1:{host.port}?q=1 HTTP/1.1\r\nhost: evil.example\r\nX-Own: 1\r\nTE: x\r\n"
            "Connection: X-Hop , keep-alive\r\nX-Hop: 2\r\nKeep-Alive: 5\r\nTrailer: t\r\nUpgrade: u\r\n"
            "Proxy-Connection: p\r\nProxy-Authenticate: q\r\nX-Last: a:b"
        )
        told = await talk(proxy, head)
    [received] = host.received
    assert received.decode() == (
        f"GET /?q=1 HTTP/1.1\r\nHost: 127.0.0.1:{host.port}\r\nConnection: close\r\nX-Own: 1\r\nX-Last: a:b\r\n\r\n"
    )
    assert told == (
        b"HTTP/1.1 100 Continue\r\nConnection: keep-alive\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
        b"HTTP/1.1 201 Created\r\nX-A: 1\r\nX-B: 2\r\nConnection: close\r\n\r\nbody\r\n\r\nend"
    )


@pytest.mark.parametrize(
    ("head", "status", "reason"),
    [
        ("nonsense", "400 Bad Request", "the request is malformed"),
        ("GET http://127.0.0.1/ HTTP/2", "400 Bad Request", "the request is malformed"),
        ("GET http://127.0.0.1/ x HTTP/1.1", "400 Bad Request", "the request is malformed"),
        ("GET https://127.0.0.1/ HTTP/1.1", "400 Bad Request", "a plain request needs an http:// address"),
        (
            "POST http://127.0.0.1/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1",
            "411 Length Required",
            "the body of a request needs a Content-Length",
        ),
        (
            "POST http://127.0.0.1/ HTTP/1.1\r\nContent-Length: ²",
            "400 Bad Request",
            "the Content-Length is malformed",
        ),
        (
            "POST http://127.0.0.1/ HTTP/1.1\r\nContent-Length: 1001",
            "413 Content Too Large",
            "the body has more than 1,000 bytes",
        ),
        ("CONNECT 10.0.0.1:80 HTTP/1.1", "403 Forbidden", None),
        ("GET http://nowhere.example/ HTTP/1.1", "502 Bad Gateway", "the host 'nowhere.example' is not found"),
        ("GET http://127.0.0.1:1/ HTTP/1.1", "502 Bad Gateway", "the host '127.0.0.1' cannot be reached"),
    ],
)
async def test_a_refusal_is_a_whole_response_that_says_why(head, status, reason):
    async def find_nothing(_host: str, _port: int) -> tuple[str, ...]:
        raise OSError("no such name")

    async with EgressProxy(HERE, look_up=find_nothing, limits=ProxyLimits(max_upload_bytes=1_000)) as proxy:
        answer = await talk(proxy, head)
        if reason is None:
            [denial] = proxy.list_denials()
            assert (denial.host, denial.port) == ("10.0.0.1", 80)
            reason = f"not allowed: {denial.reason}"
        else:
            assert proxy.denial_count == 0
        assert proxy.connection_count == 0
    assert answer.decode() == (
        f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(reason.encode())}\r\n\r\n{reason}"
    )


@pytest.mark.parametrize("line", ["", "Proxy-Authorization: Bearer TOKEN\r\n", "Proxy-Authorization: Basic\r\n"])
async def test_a_caller_without_the_password_is_asked_for_it(line):
    async with EgressProxy(HERE) as proxy:
        token = b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
        writer.write(f"GET http://10.0.0.1/ HTTP/1.1\r\n{line.replace('TOKEN', token)}\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()
        assert proxy.denial_count == 0
    assert answer.decode() == (
        "HTTP/1.1 407 Proxy Authentication Required\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
        'Content-Length: 27\r\nProxy-Authenticate: Basic realm="perdure"\r\n\r\nthis proxy needs a password'
    )


async def test_a_body_of_the_limit_is_sent_and_nothing_after_it():
    body = b"x" * 70_000
    limits = ProxyLimits(max_upload_bytes=len(body))
    async with (
        Playback([Reply(b"ok", framing="close", media_type="text/plain")]) as server,
        EgressProxy(HERE, limits=limits) as proxy,
    ):
        head = f"POST http://127.0.0.1:{server.port}/ HTTP/1.1\r\nContent-Length: {len(body)}"
        answer = await talk(proxy, head, body + b"GET / HTTP/1.1\r\n\r\n")
    assert answer.endswith(b"ok")
    assert [each.body for each in server.received] == [body]


@pytest.mark.parametrize(("size", "arrives"), [(1_000, True), (1_001, False)])
async def test_as_much_as_the_limit_goes_both_ways_through_a_tunnel(size, arrives):
    limits = ProxyLimits(max_upload_bytes=1_000, max_download_bytes=1_000)
    async with (
        RawHost(b"y" * (size - 5), reads_to_end=True) as host,
        EgressProxy(HERE, limits=limits) as proxy,
        open_tunnel(proxy, f"127.0.0.1:{host.port}") as (head, reader, writer),
    ):
        assert head == "HTTP/1.1 200 Connection Established\r\n\r\n"
        writer.write(b"x" * size)
        writer.write_eof()  # the host learns of it, and still can answer
        with contextlib.suppress(ConnectionError):
            told = await reader.read()
            assert (told == b"y" * (size - 5) + b"<end>") is arrives
    assert (host.received == [b"x" * size]) is arrives


async def test_the_next_address_is_tried_when_one_cannot_be_reached_but_only_the_first_four():
    policy = EgressPolicy(private_networks=["127.0.0.0/8"], ports=None)
    found = [f"127.0.0.{number}" for number in range(2, 9)]

    async def look_up(_host: str, _port: int) -> tuple[str, ...]:
        return tuple(found)

    async with RawHost(b"HTTP/1.1 200 OK\r\n\r\nhi") as host, EgressProxy(policy, look_up=look_up) as proxy:
        with watch_connections() as connections:
            answer = await talk(proxy, f"GET http://a.example:{host.port}/ HTTP/1.1")
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert connections[1:] == found[:4]
        found.insert(3, "127.0.0.1")
        with watch_connections() as connections:
            answer = await talk(proxy, f"GET http://a.example:{host.port}/ HTTP/1.1")
        assert answer.endswith(b"\r\n\r\nhi")
        assert connections[1:] == [*found[:3], "127.0.0.1"]
        assert (proxy.connection_count, proxy.denial_count) == (1, 0)


async def test_the_latest_denials_are_listed_first_and_only_those_since_a_count():
    async with EgressProxy() as proxy:
        for number in range(1, 4):
            await talk(proxy, f"CONNECT 10.0.0.{number}:443 HTTP/1.1")
        assert proxy.denial_count == 3
        assert [(each.host, each.port) for each in proxy.list_denials()] == [
            ("10.0.0.3", 443),
            ("10.0.0.2", 443),
            ("10.0.0.1", 443),
        ]
        assert [each.host for each in proxy.list_denials(2)] == ["10.0.0.3"]
        assert proxy.list_denials(3) == []


@pytest.mark.parametrize(
    "name",
    ["connect_seconds", "idle_seconds", "max_seconds", "max_download_bytes", "max_upload_bytes", "max_connections"],
)
def test_every_limit_is_a_number(name):
    wrong: list[Any] = ["many", -1]
    for each in wrong:
        with pytest.raises(ConfigError, match=name):
            ProxyLimits(**{name: each})
    assert getattr(ProxyLimits(**{name: 1}), name) == 1


@pytest.mark.parametrize(("digits", "status"), [("9" * 5_000, 413), ("0" * 5_000 + "1001", 413), ("0" * 5_000, 200)])
async def test_a_length_may_have_any_number_of_digits(digits, status):
    limits = ProxyLimits(max_upload_bytes=1_000)
    async with RawHost(b"HTTP/1.1 200 OK\r\n\r\nhi") as host, EgressProxy(HERE, limits=limits) as proxy:
        answer = await talk(proxy, f"POST http://127.0.0.1:{host.port}/ HTTP/1.1\r\nContent-Length: {digits}")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
