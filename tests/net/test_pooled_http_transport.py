"""Posts, answers, and all that can go wrong between here and there."""

import asyncio
import gc
import subprocess
import sys
import threading
import traceback
import weakref
from pathlib import Path
from typing import NoReturn

import pytest

from perdure._io.http.pooled import get_shared_transport
from perdure._io.http.transport import (
    HostUnreachable,
    HttpTimeoutExceeded,
    InvalidResponse,
    NetError,
    ResponseCutOff,
    ResponseTooLarge,
)
from perdure.hosts import EgressPolicy
from perdure.models import Deadlines, HttpTransport
from tests.doubles import SECONDS
from tests.wire.server import Playback, Reply, at_random, each_byte, gzipped, json_reply, sse

SECRET = "Bearer of-a-secret"
HEADERS = {"authorization": SECRET, "content-type": "application/json"}
STREAM = sse(*[{"word": f"wörd {number}"} for number in range(40)])


@pytest.fixture
async def http():
    transport = HttpTransport()
    yield transport
    await transport.aclose()


async def ask(http: HttpTransport, server: Playback, path: str = "/v1/chat") -> bytes:
    async with http.post(server.base_url + path, HEADERS, b"{}") as answer:
        return b"".join([data async for data in answer.chunks()])


def impatient(**deadlines: float) -> HttpTransport:
    return HttpTransport(deadlines=Deadlines(**deadlines))


# -- what is sent, what comes back -------------------------------------------------------------------------------------


async def test_what_is_posted_arrives_as_it_is(http):
    async with Playback([Reply(STREAM)]) as server:
        await ask(http, server, "/v1/model%3A0/converse?beta=true")
    [request] = server.received
    assert (request.method, request.path, request.body) == ("POST", "/v1/model%3A0/converse?beta=true", b"{}")
    assert request.headers["authorization"] == SECRET
    assert request.headers["user-agent"].startswith("perdure/")
    assert request.headers["accept-encoding"] == "identity"


async def test_a_large_body_arrives_whole(http):
    body = bytes(range(256)) * 20_000
    async with Playback([Reply(b"x")]) as server, http.post(server.base_url, HEADERS, body) as answer:
        assert await answer.read(10) == b"x"
    assert server.received[0].body == body


async def test_what_is_there_can_be_asked_for(http):
    async with Playback([Reply(b"x")]) as server, http.get(server.base_url + "/models", HEADERS) as answer:
        assert await answer.read(10) == b"x"
    assert (server.received[0].method, server.received[0].path) == ("GET", "/models")


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("cuts", [each_byte, at_random(1), at_random(2)])
async def test_the_body_comes_as_it_was_sent_however_it_is_cut(http, framing, cuts):
    async with Playback([Reply(STREAM, cuts=cuts, framing=framing)]) as server:
        assert await ask(http, server) == STREAM


async def test_the_names_of_headers_are_in_lower_case(http):
    async with (
        Playback([Reply(b"", 429, {"Retry-After": "7"})]) as server,
        http.post(server.base_url, HEADERS, b"") as answer,
    ):
        assert answer.status == 429
        assert dict(answer.headers)["retry-after"] == "7"


async def test_no_more_is_read_than_was_asked_for(http):
    async with Playback([Reply(b"0123456789" * 10, cuts=each_byte), Reply(b"short")]) as server:
        async with http.post(server.base_url, HEADERS, b"") as answer:
            assert await answer.read(15) == b"012345678901234"
        async with http.post(server.base_url, HEADERS, b"") as answer:
            assert await answer.read(1000) == b"short"


async def test_a_redirect_is_an_answer_and_the_key_goes_nowhere_else(http):
    async with Playback([Reply(b"x")]) as elsewhere, Playback([Reply(b"", 307, {"location": "x"})]) as server:
        server._answering = lambda _: Reply(b"", 307, {"location": elsewhere.base_url})
        async with http.post(server.base_url, HEADERS, b"{}") as answer:
            assert answer.status == 307
    assert elsewhere.received == []


async def test_a_compressed_answer_is_read(http):
    async with Playback([gzipped(STREAM)]) as server:
        assert await ask(http, server) == STREAM


# -- connections -------------------------------------------------------------------------------------------------------


async def test_a_connection_is_used_again_when_the_answer_was_read(http):
    async with Playback(lambda _: Reply(STREAM)) as server:
        for _ in range(5):
            await ask(http, server)
    assert (server.connections, len(server.received)) == (1, 5)


async def test_an_answer_is_complete_when_it_was_read_to_its_end(http):
    async with Playback([Reply(STREAM)]) as server, http.post(server.base_url, HEADERS, b"{}") as answer:
        assert not answer.is_complete
        assert b"".join([data async for data in answer.chunks()]) == STREAM
        assert answer.is_complete


async def test_an_answer_that_is_left_early_closes_its_connection_at_once(http):
    async with Playback(lambda _: Reply(STREAM, end="stall")) as server:
        async with http.post(server.base_url, HEADERS, b"") as answer:
            async for _ in answer.chunks():
                break
        await server.until(lambda server: server.hung_up == 1)
    assert no_other_tasks()


@pytest.mark.parametrize("headless", [True, False])
async def test_cancelling_closes_the_connection_and_leaves_nothing_behind(http, headless):
    async with Playback(lambda _: Reply(STREAM, end="stall", headless=headless)) as server:
        async with asyncio.timeout(30):
            asking = asyncio.create_task(ask(http, server))
            await server.until(lambda server: len(server.received) == 1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await server.until(lambda server: server.hung_up == 1)
    assert no_other_tasks()


async def test_an_old_connection_that_was_dropped_is_replaced(http):
    async with Playback([Reply(b"one"), Reply(end="close", headless=True), Reply(b"two")]) as server:
        assert await ask(http, server) == b"one"
        assert await ask(http, server) == b"two"
    assert (server.connections, len(server.received)) == (2, 3)


async def test_a_new_connection_that_was_dropped_is_told_and_not_repeated(http):
    async with Playback([Reply(end="reset", headless=True), Reply(b"late")]) as server:
        with pytest.raises(HostUnreachable, match=f"127.0.0.1:{server.port}' closed the connection without an answer"):
            await ask(http, server)
    assert len(server.received) == 1


async def test_many_at_once_leave_no_task_and_no_file_open():
    async with Playback(lambda _: Reply(STREAM, cuts=at_random(3))) as server:
        before = list_open_files()
        http = HttpTransport()
        answers = await asyncio.gather(*[ask(http, server) for _ in range(50)])
        assert answers == [STREAM] * 50
        await http.aclose()
        await server.until(lambda server: server.open_connections == 0)
        assert list_open_files() <= before
    assert no_other_tasks()


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_reader_does_not_wait_for_ever_when_the_connections_are_closed(framing):
    http, received = impatient(idle_seconds=2 * SECONDS), asyncio.Event()

    async def read() -> None:
        async with http.post(server.base_url, HEADERS, b"{}") as answer:
            async for _ in answer.chunks():
                received.set()

    async with asyncio.timeout(SECONDS), Playback([Reply(STREAM, framing=framing, end="stall", after=100)]) as server:
        reading = asyncio.ensure_future(read())
        await received.wait()
        await http.aclose()
        with pytest.raises(NetError):
            await reading


async def test_a_request_keeps_its_time_limit_when_the_connections_are_closed():
    begun = asyncio.Event()

    async def look_up(*_: object) -> NoReturn:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    http = HttpTransport(deadlines=Deadlines(first_byte_seconds=0.2), egress=EgressPolicy(), look_up=look_up)
    async with asyncio.timeout(SECONDS):
        asking = asyncio.ensure_future(http.post("http://host.example/", HEADERS, b"{}").__aenter__())
        await begun.wait()
        await http.aclose()
        with pytest.raises(NetError):
            await asking


async def test_what_was_closed_can_be_used_again(http):
    async with Playback(lambda _: Reply(b"x")) as server:
        assert await ask(http, server) == b"x"
        await http.aclose()
        await http.aclose()
        assert await ask(http, server) == b"x"


def list_open_files() -> set[str]:
    gc.collect()  # what an earlier test has left is closed now, and not in between
    return {each.name for each in Path("/proc/self/fd").iterdir()}


def no_other_tasks() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


# -- event loops -------------------------------------------------------------------------------------------------------


def test_each_event_loop_has_connections_of_its_own_which_close_with_it():
    http = HttpTransport()
    with Playback(lambda _: Reply(STREAM)) as server:
        for _ in range(3):
            assert asyncio.run(ask(http, server)) == STREAM
            asyncio.run(server_sees_nobody(server))
        del http
        gc.collect()
    assert server.connections == 3


async def server_sees_nobody(server: Playback) -> None:
    await server.until(lambda server: server.open_connections == 0)


def test_loops_in_several_threads_share_one_transport():
    http, bodies = HttpTransport(), []
    with Playback(lambda _: Reply(STREAM, cuts=at_random(4))) as server:
        threads = [threading.Thread(target=lambda: bodies.append(asyncio.run(ask(http, server)))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert bodies == [STREAM] * 4


def test_closing_reaches_the_loops_of_other_threads():
    http = HttpTransport()
    other = asyncio.new_event_loop()
    thread = threading.Thread(target=other.run_forever)
    thread.start()
    with Playback(lambda _: Reply(STREAM)) as server:
        asyncio.run_coroutine_threadsafe(ask(http, server), other).result(30)
        asyncio.run(http.aclose())
        asyncio.run(server_sees_nobody(server))
    asyncio.run_coroutine_threadsafe(other.shutdown_asyncgens(), other).result(30)  # what it has begun to close
    other.call_soon_threadsafe(other.stop)
    thread.join(30)
    other.close()


def test_closing_waits_until_the_loops_of_other_threads_have_closed_their_connections(monkeypatch):
    http = HttpTransport()
    other = asyncio.new_event_loop()
    thread = threading.Thread(target=other.run_forever)
    thread.start()
    begun, may_close = threading.Event(), threading.Event()

    async def close_late() -> None:
        begun.set()
        await asyncio.to_thread(may_close.wait, 30)
        await close()

    async def close_all() -> tuple[bool, bool]:
        closing = asyncio.ensure_future(http.aclose())
        assert await asyncio.to_thread(begun.wait, 30)
        done_early = closing.done()
        may_close.set()
        await asyncio.wait_for(closing, 30)
        return done_early, pool.is_closed

    with Playback(lambda _: Reply(STREAM)) as server:
        asyncio.run_coroutine_threadsafe(ask(http, server), other).result(30)
        pool = http._pools[other][0]
        close = pool.aclose
        monkeypatch.setattr(pool, "aclose", close_late)
        assert asyncio.run(close_all()) == (False, True)
    asyncio.run_coroutine_threadsafe(other.shutdown_asyncgens(), other).result(30)
    other.call_soon_threadsafe(other.stop)
    thread.join(30)
    other.close()


def test_closing_does_not_wait_for_a_loop_that_does_not_run():
    http = HttpTransport()
    resting = asyncio.new_event_loop()
    with Playback(lambda _: Reply(STREAM)) as server:
        resting.run_until_complete(ask(http, server))
        asyncio.run(asyncio.wait_for(http.aclose(), 30))
        resting.run_until_complete(server_sees_nobody(server))  # by what it has begun to close
    resting.close()


def test_a_loop_that_was_closed_is_not_kept():
    http, loops = HttpTransport(), []

    async def ask_here() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await ask(http, server)

    with Playback(lambda _: Reply(STREAM)) as server:
        asyncio.run(ask_here())
        asyncio.run(ask_here())
        gc.collect()
    assert loops[0]() is None


def test_a_transport_that_nobody_has_any_more_closes_its_connections():
    async def forgetful(server: Playback) -> None:
        await ask(HttpTransport(), server)
        gc.collect()
        await server_sees_nobody(server)

    with Playback(lambda _: Reply(STREAM)) as server:
        asyncio.run(forgetful(server))


FORGOTTEN = """
import asyncio, gc, sys
from perdure.models import HttpTransport
async def ask():
    async with http.post(sys.argv[1], {}, b"{}") as answer:
        return await answer.read(10)
http = HttpTransport()
loop = asyncio.new_event_loop()
loop.run_until_complete(ask())
loop.close()  # without a word to anybody
asyncio.run(ask())
asyncio.run(ask())
gc.collect()
print("done")
"""


def test_nobody_is_told_of_sessions_that_were_not_closed():
    with Playback(lambda _: Reply(b"x")) as server:
        ended = subprocess.run(
            [sys.executable, "-c", FORGOTTEN, server.base_url], capture_output=True, text=True, timeout=30, check=True
        )
    assert (ended.stdout, ended.stderr) == ("done\n", "")


AT_THE_END = """
import sys
from perdure._io.http.pooled import get_shared_transport
from perdure._runtime.agent.sync_loop import run_on_background_loop
async def ask():
    async with get_shared_transport().post(sys.argv[1], {}, b"{}") as answer:
        return await answer.read(10)
print(run_on_background_loop(ask), run_on_background_loop(ask))
"""


def test_a_process_that_ends_with_open_connections_ends_quietly():
    with Playback(lambda _: Reply(b"x")) as server:
        ended = subprocess.run(
            [sys.executable, "-W", "default", "-c", AT_THE_END, server.base_url],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    assert (ended.stdout, ended.stderr) == ("b'x' b'x'\n", "")
    assert server.connections == 1


def test_importing_it_does_not_import_aiohttp():
    code = "import sys, perdure._io.http.pooled as net; net.get_shared_transport(); print('aiohttp' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "False\n"


def test_there_is_one_for_whoever_brings_none():
    assert get_shared_transport() is get_shared_transport()


# -- deadlines ---------------------------------------------------------------------------------------------------------


async def test_an_answer_that_does_not_begin_is_given_up():
    async with Playback(lambda _: Reply(end="stall", headless=True)) as server:
        with pytest.raises(HttpTimeoutExceeded, match=r"did not start to respond within 0.05 s"):
            await ask(impatient(first_byte_seconds=0.05), server)
        await server.until(lambda server: server.hung_up == 1)


async def test_an_answer_that_stops_in_the_middle_is_given_up():
    async with Playback(lambda _: Reply(STREAM, end="stall", after=100)) as server:
        with pytest.raises(HttpTimeoutExceeded, match=r"has sent nothing for 0.05 s in the middle of its answer"):
            await ask(impatient(idle_seconds=0.05), server)
        await server.until(lambda server: server.hung_up == 1)


# -- what is broken ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "reset", "garbage"])
async def test_an_answer_that_breaks_off_is_told_after_what_came_of_it(end):
    http = HttpTransport()
    async with Playback(lambda _: Reply(STREAM, end=end, after=100, cuts=at_random(5))) as server:
        with pytest.raises(ResponseCutOff, match=r"the answer of '127.0.0.1(:\d+)?' broke off") as raised:
            await ask(http, server)
    assert raised.value.retryable
    await http.aclose()


async def test_an_answer_whose_beginning_is_well_formed_is_http_whatever_follows(http):
    async with Playback([Reply(end="garbage")]) as server:
        with pytest.raises(ResponseCutOff, match="Invalid character in chunk size"):
            await ask(http, server)


async def test_a_length_that_is_not_kept_is_told(http):
    async with Playback([Reply(STREAM, framing="length", end="close", after=100)]) as server:
        with pytest.raises(ResponseCutOff):
            await ask(http, server)


async def test_what_is_not_http_is_told(http):
    async with Playback([Reply(end="garbage", headless=True)]) as server:
        with pytest.raises(InvalidResponse, match="sent a response that is not HTTP"):
            await ask(http, server)


async def test_compression_that_is_none_is_told(http):
    async with Playback([Reply(b"this is not gzip", headers={"content-encoding": "gzip"})]) as server:
        with pytest.raises(InvalidResponse, match="is not compressed as its header says"):
            await ask(http, server)


async def test_a_body_that_unpacks_to_more_than_is_taken_is_left():
    http = HttpTransport(max_bytes=1_000_000)
    async with Playback([gzipped(b"\0" * 50_000_000)]) as server:
        with pytest.raises(ResponseTooLarge, match="exceeds the size limit"):
            await ask(http, server)
    await http.aclose()


async def test_an_endless_answer_is_left():
    http = HttpTransport(max_bytes=100_000)
    async with Playback([Reply(b": ping\n\n" * 100, end="repeat")]) as server:
        with pytest.raises(ResponseTooLarge):
            await ask(http, server)
        await server.until(lambda server: server.hung_up == 1)
    await http.aclose()


async def test_nobody_at_an_address_is_told_with_the_address(http):
    async with Playback([]) as server:
        url = server.base_url
    with pytest.raises(HostUnreachable, match=f"cannot connect to '127.0.0.1:{server.port}' .*is it running"):
        async with http.post(url, HEADERS, b""):
            pass


@pytest.mark.parametrize("url", ["ftp://example.com/x", "https:///nothing", "no address"])
async def test_what_is_no_address_is_told_and_is_not_worth_repeating(http, url):
    with pytest.raises(NetError, match="give a") as raised:
        async with http.post(url, HEADERS, b""):
            pass
    assert not raised.value.retryable


async def test_a_bracket_that_is_not_closed_is_told_as_any_other_error(http):
    with pytest.raises(NetError, match=r"cannot send a request to '\[::1:8000'"):
        async with http.post("http://user:password@[::1:8000/v1?key=secret", HEADERS, b""):
            pass


async def test_a_key_with_a_line_end_is_refused_without_showing_it(http):
    async with Playback([]) as server:
        with pytest.raises(NetError) as raised:
            async with http.post(server.base_url, {"authorization": SECRET + "\n"}, b""):
                pass
    assert server.received == []
    assert not raised.value.retryable
    assert "secret" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("end", ["close", "reset", "garbage"])
@pytest.mark.parametrize("headless", [True, False])
async def test_no_error_carries_the_key(http, end, headless):
    async with Playback([Reply(STREAM, end=end, headless=headless)]) as server:
        with pytest.raises(NetError) as raised:
            await ask(http, server, "/v1?key=a-secret-too")
    error: BaseException | None = raised.value
    while error is not None:
        assert "secret" not in f"{error!r} {error}"
        error = error.__cause__ or error.__context__


# -- the environment ---------------------------------------------------------------------------------------------------


@pytest.fixture
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def test_the_proxy_of_the_environment_is_used(monkeypatch, no_proxies):
    http = HttpTransport()
    async with Playback([json_reply({})]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.base_url)
        async with http.post("http://provider.invalid/v1", HEADERS, b"{}") as answer:
            assert answer.status == 200
    assert proxy.received[0].path == "http://provider.invalid/v1"
    await http.aclose()


async def test_the_environment_may_except_a_host_from_its_proxy(monkeypatch, no_proxies):
    http = HttpTransport()
    async with Playback([Reply(b"direct")]) as server:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert await ask(http, server) == b"direct"
    await http.aclose()


async def test_a_proxy_that_cannot_be_reached_is_named_as_the_reason(monkeypatch, no_proxies):
    http = HttpTransport()
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    with pytest.raises(
        HostUnreachable, match=r"the proxy on the way to 'provider.invalid' cannot be reached .*HTTPS_PROXY"
    ):
        async with http.post("https://provider.invalid/v1", HEADERS, b"{}"):
            pass
    await http.aclose()


async def test_a_proxy_that_refuses_is_named_as_the_reason(monkeypatch, no_proxies):
    http = HttpTransport()
    async with Playback([Reply(b"", 407)]) as proxy:
        monkeypatch.setenv("https_proxy", proxy.base_url)
        with pytest.raises(HostUnreachable, match=r"the proxy on the way to 'provider.invalid' refuses the request"):
            async with http.post("https://provider.invalid/v1", HEADERS, b"{}"):
                pass
    await http.aclose()
