"""How an answer is watched over while it comes in, by a clock that a test moves."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from perdure._io.http.pool import HttpConnectionPool, ReceivedResponse, find_proxy
from perdure._io.http.timeouts import MAX_CHECK_SECONDS, SharedTimeoutTimer
from perdure._io.http.transport import HttpTimeoutExceeded, ResponseCutOff, ResponseTooLarge
from perdure.models import Deadlines


class Loop:
    """As much of an event loop as a timer needs."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, action: Callable[[], None]) -> Any:
        timer = (self.now + seconds, action)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    async def pass_by(self, seconds: float) -> None:
        until = self.now + seconds
        while self.timers and min(due for due, _ in self.timers) <= until:
            timer = min(self.timers, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now = timer[0]
            timer[1]()
            await asyncio.sleep(0)
        self.now = until
        await asyncio.sleep(0)


class Content:
    """A body that comes when the test says so."""

    def __init__(self) -> None:
        self.next: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def readany(self) -> bytes:
        data = await self.next
        self.next = asyncio.get_running_loop().create_future()
        return data

    def set_exception(self, error: Exception) -> None:
        self.next.set_exception(error)

    def exception(self) -> None:
        return None

    def is_eof(self) -> bool:
        return False


class Response:
    status = 200
    headers = {"X-One": "1"}  # noqa: RUF012 - as small as can be
    url = SimpleNamespace(host="host.example")
    closed = True

    def __init__(self) -> None:
        self.content = Content()
        self.leaving = False
        self.connection = SimpleNamespace(transport=SimpleNamespace(is_closing=lambda: self.leaving))


def begun(idle_seconds: float = 300.0) -> tuple[ReceivedResponse, Response, Loop]:
    response, loop = Response(), Loop()
    watch: Any = SharedTimeoutTimer(loop, idle_seconds)  # type: ignore[arg-type]  # as much of a loop as is used
    received: Any = ReceivedResponse(response, watch, idle_seconds, 1000)  # type: ignore[arg-type]  # likewise
    return received, response, loop


async def waiting_for(received: ReceivedResponse) -> asyncio.Task[bytes]:
    task = asyncio.ensure_future(anext(received))
    await asyncio.sleep(0)
    return task


async def test_closing_from_another_thread_waits_until_the_connections_are_closed(monkeypatch):
    pool = HttpConnectionPool(Deadlines(), 1000)
    returned, order, close = threading.Event(), list[str](), pool.aclose

    async def close_slowly() -> None:
        await asyncio.to_thread(returned.wait, 0.2)  # time enough for one that does not wait
        await close()
        order.append("closed")

    def close_and_return() -> None:
        pool.close_threadsafe()
        order.append("returned")
        returned.set()

    monkeypatch.setattr(pool, "aclose", close_slowly)
    async with asyncio.timeout(30):
        await asyncio.to_thread(close_and_return)
    assert order == ["closed", "returned"]


async def test_of_very_many_addresses_only_some_are_remembered(monkeypatch):
    monkeypatch.setattr("perdure._io.http.pool._MOST_ADDRESSES", 3)
    pool = HttpConnectionPool(Deadlines(), 1000)
    try:
        urls = [f"http://host.example/{number}" for number in range(8)]
        assert [str(pool._parse_url(url)) for url in urls] == urls
        assert len(pool._addresses) <= 3
        assert pool._parse_url(urls[-2]) is pool._parse_url(urls[-2])
        assert pool._parse_url(urls[-1]) is pool._parse_url(urls[-1])
        assert {*urls[-2:]} <= {*pool._addresses}
    finally:
        await pool.aclose()


async def test_a_slow_trickle_is_no_silence():
    received, response, loop = begun()
    for _ in range(5):
        piece = await waiting_for(received)
        await loop.pass_by(299)
        response.content.next.set_result(b"x")
        assert await piece == b"x"


async def test_a_silence_ends_the_answer_when_its_time_is_up():
    received, _, loop = begun(idle_seconds=300)
    piece = await waiting_for(received)
    await loop.pass_by(299.5)
    assert not piece.done()
    await loop.pass_by(0.5)
    with pytest.raises(HttpTimeoutExceeded, match=r"'host.example' has sent nothing for 300 s"):
        await piece


async def test_whoever_reads_slowly_is_not_blamed_on_the_other_side():
    received, response, loop = begun(idle_seconds=10)
    await loop.pass_by(1000)
    piece = await waiting_for(received)
    await loop.pass_by(9)
    response.content.next.set_result(b"x")
    assert await piece == b"x"
    await loop.pass_by(1000)
    piece = await waiting_for(received)
    await loop.pass_by(10)
    with pytest.raises(HttpTimeoutExceeded):
        await piece


async def test_a_connection_that_went_away_unnoticed_is_noticed_soon():
    received, response, loop = begun()
    piece = await waiting_for(received)
    await loop.pass_by(20)
    response.leaving = True
    await loop.pass_by(MAX_CHECK_SECONDS)
    with pytest.raises(ResponseCutOff, match=r"'host.example' broke off in the middle of its framing"):
        await piece


async def test_one_timer_is_all_there_is_and_it_goes_soon_after_the_answer():
    received, response, loop = begun()
    for _ in range(50):
        piece = await waiting_for(received)
        response.content.next.set_result(b"x")
        await piece
        assert len(loop.timers) == 1
        await loop.pass_by(3)
    received.close()
    await loop.pass_by(MAX_CHECK_SECONDS)
    assert loop.timers == []


@pytest.mark.parametrize(
    ("origin", "environment", "proxy"),
    [
        ("https://host.example", {"https_proxy": "http://proxy:1"}, "http://proxy:1"),
        ("https://host.example:8443", {"https_proxy": "http://proxy:1", "no_proxy": "other.example"}, "http://proxy:1"),
        ("https://host.example", {"https_proxy": "http://proxy:1", "no_proxy": ".example"}, None),
        ("https://me:word@host.example", {"https_proxy": "http://proxy:1", "no_proxy": "host.example"}, None),
        ("https://host.example", {"all_proxy": "http://proxy:1"}, "http://proxy:1"),
        ("http://host.example", {"https_proxy": "http://proxy:1"}, None),
        ("https://host.example", {}, None),
        ("nothing", {"all_proxy": "http://proxy:1"}, None),
    ],
)
def test_the_environment_says_which_proxy_is_for_whom(monkeypatch, origin, environment, proxy):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert find_proxy(origin) == proxy


async def test_an_answer_that_has_failed_is_watched_no_more() -> None:
    silent, _, loop = begun(idle_seconds=10)
    piece = await waiting_for(silent)
    await loop.pass_by(10)
    with pytest.raises(HttpTimeoutExceeded):
        await piece
    await loop.pass_by(MAX_CHECK_SECONDS)
    assert loop.timers == []
    lost, response, loop = begun()
    piece = await waiting_for(lost)
    response.leaving = True
    await loop.pass_by(MAX_CHECK_SECONDS)
    with pytest.raises(ResponseCutOff):
        await piece
    await loop.pass_by(MAX_CHECK_SECONDS)
    assert loop.timers == []


async def test_an_answer_says_when_it_has_to_be_looked_at_again() -> None:
    received, response, loop = begun(idle_seconds=10)
    response.leaving = True
    assert received.check_time(loop.now + 1000) == 10  # as nobody waits for it
    piece = await waiting_for(received)
    response.leaving = False
    assert received.check_time(loop.now) == 10
    assert received.check_time(loop.now + 4) == 6
    response.leaving = True
    assert received.check_time(loop.now) == 10  # one that has just begun to wait is not lost
    assert not piece.done()
    received.check_time(loop.now + 0.25)
    with pytest.raises(ResponseCutOff):
        await piece


@pytest.mark.parametrize("way", ["no connection", "no transport", "closing"])
@pytest.mark.parametrize("is_told", [False, True])
async def test_a_lost_connection_is_told_unless_the_reader_knows_already(way: str, is_told: bool) -> None:
    received, response, loop = begun()
    piece = await waiting_for(received)
    connection: Any = {
        "no connection": None,
        "no transport": SimpleNamespace(transport=None),
        "closing": SimpleNamespace(transport=SimpleNamespace(is_closing=lambda: True)),
    }[way]
    response.connection = connection
    told: Any = ValueError if is_told else None
    response.content.exception = lambda: told  # type: ignore[method-assign]
    received.check_time(loop.now + 1)
    await asyncio.sleep(0)
    assert response.content.next.done() is not is_told
    piece.cancel()
    await asyncio.wait([piece])


async def test_an_answer_whose_end_has_come_is_not_lost() -> None:
    received, response, loop = begun()
    piece = await waiting_for(received)
    response.leaving = True
    response.content.is_eof = lambda: True  # type: ignore[method-assign]
    received.check_time(loop.now + 1)
    response.content.next.set_result(b"")
    with pytest.raises(StopAsyncIteration):
        await piece


async def test_an_answer_may_be_exactly_as_large_as_its_limit() -> None:
    received, response, _ = begun()
    for size in (600, 400):
        piece = await waiting_for(received)
        response.content.next.set_result(b"x" * size)
        assert len(await piece) == size
    piece = await waiting_for(received)
    response.content.next.set_result(b"x")
    with pytest.raises(ResponseTooLarge) as caught:
        await piece
    assert str(caught.value) == "the response of 'host.example' exceeds the size limit: stopped reading"


async def test_reading_stops_when_there_is_enough() -> None:
    received, response, _ = begun()
    response.content.next.set_result(b"abcd")
    assert await received.read(4) == b"abcd"  # without waiting for more
    response.content.next.set_result(b"abcd")
    assert await received.read(3) == b"abc"


def make_pool(loop: asyncio.AbstractEventLoop) -> HttpConnectionPool:
    async def make() -> HttpConnectionPool:
        return HttpConnectionPool(Deadlines(), 1000)

    return loop.run_until_complete(make())


def test_a_pool_whose_loop_does_not_run_is_closed_from_outside() -> None:
    loop = asyncio.new_event_loop()
    pool = make_pool(loop)
    assert pool.is_closed is False
    pool.close_threadsafe()
    assert pool.is_closed is True
    loop.close()


def test_a_pool_whose_loop_was_closed_is_closed_by_the_next_one() -> None:
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    left, open_one = make_pool(first), make_pool(second)
    first.close()
    assert not left.is_closed
    third = make_pool(second)
    assert left.is_closed
    assert not open_one.is_closed
    for each in (open_one, third):
        second.run_until_complete(each.aclose())
    second.close()


@pytest.mark.parametrize("way", ["aclose", "abandon"])
def test_a_closed_pool_is_not_kept(way: str) -> None:
    loop = asyncio.new_event_loop()
    pool = make_pool(loop)
    if way == "aclose":
        loop.run_until_complete(pool.aclose())
    else:
        pool.abandon()
    kept = weakref.ref(pool)
    del pool
    loop.close()
    gc.collect()
    assert kept() is None


async def test_an_answer_is_looked_at_as_often_as_the_shortest_deadline_needs() -> None:
    for deadlines in (Deadlines(first_byte_seconds=0.25), Deadlines(idle_seconds=0.25)):
        pool = HttpConnectionPool(deadlines, 1000)
        loop = Loop()
        watch: Any = pool._watch
        watch._loop = loop
        watch.add(SimpleNamespace)
        assert [due for due, _ in loop.timers] == [100.25]
        watch.remove(SimpleNamespace)
        await pool.aclose()
