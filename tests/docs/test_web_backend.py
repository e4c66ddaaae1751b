"""The backend of docs/how-to/web-backend.md behind a real server, asked over HTTP: what the page says of it holds."""

import asyncio
import contextlib
import json
import signal
import socket
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

from perdure._core.values.clock import new_id
from tests.docs.backend_process import WARM, serve
from tests.docs.pages import ROOT, blocks_of
from tests.doubles import SECONDS

PAGE = ROOT / "docs" / "how-to" / "web-backend.md"
SHIP = {"text": "please ship it", "input_id": "mail-7"}


class Server:
    """The backend of the page, in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.errors = folder / "errors.txt"
        """What the server writes to stderr."""
        with socket.create_server(("127.0.0.1", 0)) as listening:  # so that no other process can have the port
            self.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            options = ("--timeout-graceful-shutdown", "1", *options)
            self.process = WARM.Process(target=serve, args=(folder, self.errors, listening, options))
            self.process.start()
            with urllib.request.urlopen(f"{self.address}/openapi.json", timeout=SECONDS):
                pass  # it answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End the process as a crash does."""
        self.process.kill()
        self.process.join(SECONDS)

    def stop(self) -> int | None:
        """Ask the process to end, and return its exit code."""
        self.process.terminate()
        self.process.join(SECONDS)
        return self.process.exitcode


class Client:
    """A client of one session of the backend."""

    def __init__(self, server: Server, name: str = "help") -> None:
        self.http = aiohttp.ClientSession(server.address, headers={"user": "ann"})
        self.path = f"/sessions/{name}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    @contextlib.asynccontextmanager
    async def post(self, path: str, *, user: str = "ann", **body: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        request = self.http.post(f"{self.path}/{path}", json=body, headers={"user": user})
        async with asyncio.timeout(SECONDS), request as response:
            yield response

    @contextlib.asynccontextmanager
    async def watch(self, *, after: int = 0, user: str = "ann") -> AsyncIterator["Frames"]:
        headers = {"Last-Event-ID": str(after), "user": user}
        async with asyncio.timeout(SECONDS), self.http.get(f"{self.path}/events", headers=headers) as response:
            yield Frames(response)

    async def questions(self) -> list[dict[str, str]]:
        async with self.http.get(f"{self.path}/questions") as response:
            found: list[dict[str, str]] = await response.json()
        return found


class Frames:
    """The server-sent events of a response."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        self._response = response
        self.ids: list[int] = []
        """The numbers of the entries that were read."""

    async def read_comment(self) -> bytes:
        """Return the first line, which has to be a comment."""
        return await self._response.content.readline()

    async def read_until(self, kind: str = "") -> list[dict[str, Any]]:
        """Return the events up to one of this type; without one, to the end of the response."""
        found: list[dict[str, Any]] = []
        async for line in self._response.content:
            if line.startswith(b"id: "):
                self.ids.append(int(line.removeprefix(b"id: ")))
            elif line.startswith(b"data: "):
                found.append(json.loads(line.removeprefix(b"data: ")))
                if found[-1]["type"] == kind:
                    return found
        assert not kind, f"the response ended without {kind!r}: {found}"
        return found


def types(events: list[dict[str, Any]]) -> list[str]:
    """The types of events, of deltas the first in a row."""
    found = [event["type"] for event in events]
    return [each for place, each in enumerate(found) if each != "delta" or found[place - 1 : place] != ["delta"]]


def write_backend(folder: Path) -> Path:
    """Write the backend of the page into a folder."""
    (block,) = [each for each in blocks_of(PAGE) if each.file == "backend.py"]
    (folder / "backend.py").write_text(block.text, encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with the backend of the page, for tests that start servers of their own."""
    return write_backend(tmp_path)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    """A server for all tests that do not end it; each has a session of its own."""
    with Server(write_backend(tmp_path_factory.mktemp("backend"))) as server:
        yield server


@pytest.fixture
async def client(server) -> AsyncIterator[Client]:
    async with Client(server, new_id()) as client:
        yield client


async def test_a_message_is_answered_in_a_stream_and_other_pages_see_it_happen(client):
    async with client.watch() as page, client.post("messages", text="hello") as response:
        own = Frames(response)
        streamed = await own.read_until()
        watched = await page.read_until("ended")
    assert types(streamed) == types(watched) == ["user", "delta", "assistant", "ended"]
    assert "".join([each["text"] for each in streamed if each["type"] == "delta"]) == "You said 'hello'."
    assert own.ids == page.ids


async def test_two_messages_at_once_are_answered_one_after_the_other(client):
    async def say(text: str) -> list[dict[str, Any]]:
        async with client.post("messages", text=text) as response:
            return await Frames(response).read_until()

    answers = await asyncio.gather(*[say(text) for text in ("one", "two", "three")])
    assert [types(each) for each in answers] == [["user", "delta", "assistant", "ended"]] * 3
    async with client.watch() as page:
        seen = [*await page.read_until("ended"), *await page.read_until("ended"), *await page.read_until("ended")]
    assert types(seen) == ["user", "assistant", "ended"] * 3


async def test_a_client_that_comes_back_gets_what_it_missed_once_and_then_what_happens(client):
    async with client.post("messages", text="hello") as response:
        first = Frames(response)
        await first.read_until()
    async with client.post("messages", **SHIP) as response:
        lost = Frames(response)
        await lost.read_until("user")
    async with client.watch(after=lost.ids[-1]) as page:
        assert types(await page.read_until("tool")) == ["tool"]
        async with client.post("cancel") as response:
            assert await response.json() == {"cancelled": True}
        assert (await page.read_until("ended"))[-1]["status"] == "cancelled"
    async with client.watch() as everything:
        await everything.read_until("ended")
        await everything.read_until("ended")
    assert [*first.ids, *lost.ids, *page.ids] == everything.ids


async def test_a_client_whose_number_is_beyond_the_log_gets_everything_again(client):
    async with client.watch(after=100) as page, client.post("messages", text="hello") as response:
        await Frames(response).read_until()
        assert types(await page.read_until("ended")) == ["user", "delta", "assistant", "ended"]
    async with client.watch(after=100) as again:
        assert types(await again.read_until("ended")) == ["user", "assistant", "ended"]


async def test_a_user_whose_name_contains_a_slash_is_refused(client):
    async with client.post("messages", user="ann/other", text="hello") as response:
        assert response.status == 422
        assert "without slashes" in (await response.json())["detail"]


async def test_a_page_that_waits_gets_comments_that_keep_its_connection_open(folder):
    backend = folder / "backend.py"
    text = backend.read_text(encoding="utf-8")
    backend.write_text(text.replace("KEEP_ALIVE_SECONDS = 15.0", "KEEP_ALIVE_SECONDS = 0.01"), encoding="utf-8")
    with Server(folder) as server:
        async with Client(server) as client, client.watch() as page:
            assert await page.read_comment() == b": still here\n"
            async with client.post("messages", text="hello") as response:
                await Frames(response).read_until()
            assert types(await page.read_until("ended")) == ["user", "delta", "assistant", "ended"]


async def test_a_message_that_is_sent_again_shows_the_same_run(client):
    async with client.post("messages", **SHIP) as first, client.post("messages", **SHIP) as second:
        assert types(await Frames(first).read_until("tool")) == ["user", "tool"]
        again = Frames(second)
        assert types(await again.read_until("tool")) == ["user", "tool"]
        async with client.post("cancel"):
            pass
        assert (await again.read_until())[-1] == {"type": "ended", "status": "cancelled"}
    async with client.post("messages", **SHIP) as third:
        told = Frames(third)
        assert types(await told.read_until()) == ["user", "tool", "ended"]
    assert told.ids == again.ids


async def test_an_approval_continues_the_run_in_a_stream_also_after_a_restart(folder):
    with Server(folder) as server:
        async with Client(server) as client, client.post("messages", text="refund me") as response:
            assert types(await Frames(response).read_until()) == ["user", "question", "waiting"]
        assert server.stop() in {0, -signal.SIGTERM}
    with Server(folder) as server:
        async with Client(server) as client:
            (question,) = await client.questions()
            assert question["text"] == "May 'refund' be called on order-7?"
            async with client.post(f"answers/{question['ask_id']}", allow=True) as response:
                events = await Frames(response).read_until()
            assert types(events) == ["tool", "delta", "assistant", "ended"]
            assert events[-2]["text"] == "I was told: order-7 is paid back."
            async with client.post(f"answers/{question['ask_id']}", allow=True) as response:
                assert (response.status, "answered before" in await response.text()) == (409, True)


async def test_a_denied_call_is_not_made(client):
    async with client.post("messages", text="refund me") as response:
        question = (await Frames(response).read_until())[1]
    async with client.post(f"answers/{question['ask_id']}", allow=False) as response:
        events = await Frames(response).read_until()
    assert types(events) == ["delta", "assistant", "ended"]
    assert "paid back" not in events[-2]["text"]


async def test_a_server_that_is_asked_to_end_leaves_its_run_to_the_next_one(folder):
    page = folder / "backend.py"
    page.write_text(page.read_text(encoding="utf-8").replace("tool_seconds=10", "tool_seconds=0.2"), encoding="utf-8")
    with Server(folder) as server:
        async with Client(server) as client, client.post("messages", **SHIP) as response:
            await Frames(response).read_until("tool")
            stopping = asyncio.get_running_loop().run_in_executor(None, server.stop)
            assert (await Frames(response).read_until())[-1] == {"type": "waiting", "reason": "shutdown"}
            assert await stopping in {0, -signal.SIGTERM}
    with Server(folder) as server:
        async with Client(server) as client, client.post("resume") as response:
            events = await Frames(response).read_until()
    assert events[-1]["type"] == "ended"
    assert "I was told: The process had to end while this ran" in "".join(
        [each["text"] for each in events if each["type"] == "assistant"]
    )


async def test_open_pages_end_when_the_server_is_asked_to_and_it_logs_no_error(folder):
    page = folder / "backend.py"
    page.write_text(page.read_text(encoding="utf-8").replace("tool_seconds=10", "tool_seconds=0.2"), encoding="utf-8")
    with Server(folder, "--timeout-graceful-shutdown", str(SECONDS)) as server:
        async with (
            Client(server) as client,
            Client(server, "idle") as idle,
            client.watch() as working_page,
            idle.watch() as idle_page,
            client.post("messages", **SHIP),
        ):
            await working_page.read_until("tool")
            stopping = asyncio.get_running_loop().run_in_executor(None, server.stop)
            assert await working_page.read_until() == [{"type": "waiting", "reason": "shutdown"}]
            assert await idle_page.read_until() == []
            assert await stopping in {0, -signal.SIGTERM}
        assert server.errors.read_text(encoding="utf-8") == ""


async def test_a_run_in_progress_is_steered_once_for_each_id(client):
    async with client.post("steer", text="Be brief.", post_id="1") as first:
        assert await first.json() == {"new": True}
    async with client.post("steer", text="Be brief.", post_id="1") as second:
        assert await second.json() == {"new": False}
    async with client.post("messages", text="hello") as response:
        said = [each["text"] for each in await Frames(response).read_until() if each["type"] == "user"]
    assert said == ["hello", "Be brief."]


async def test_a_run_that_a_crash_cut_off_is_resumed_in_a_stream(folder):
    with Server(folder) as server:
        async with Client(server) as client, client.post("messages", **SHIP) as response:
            before = Frames(response)
            await before.read_until("tool")
            server.kill()
    with Server(folder) as server:
        async with Client(server) as client:
            async with client.post("resume") as response:
                after = Frames(response)
                events = await after.read_until()
            assert types(events) == ["delta", "assistant", "ended"]
            assert "on its way" not in events[-2]["text"]  # it may have been shipped, and is not shipped twice
            async with client.watch(after=before.ids[-1]) as page:
                await page.read_until("ended")
    assert page.ids == after.ids


@pytest.mark.parametrize("first", ["other", "own", "both"])
async def test_messages_that_come_back_in_any_order_after_a_crash_are_all_answered(folder, first):
    """That of the run which the crash cut off is answered first, as it was before."""
    with Server(folder) as server:
        async with Client(server) as client, client.post("messages", **SHIP) as response:
            await Frames(response).read_until("tool")
            server.kill()

    async def send(client: Client, **message: str) -> list[dict[str, Any]]:
        async with client.post("messages", **message) as response:
            return await Frames(response).read_until()

    other = {"text": "hello", "input_id": "8"}
    with Server(folder) as server:
        async with Client(server) as client:
            if first == "both":
                told = [*await asyncio.gather(send(client, **other), send(client, **SHIP))]
            else:
                order = [other, SHIP] if first == "other" else [SHIP, other]
                told = [await send(client, **each) for each in order]
            async with client.watch() as page:
                seen = [*await page.read_until("ended"), *await page.read_until("ended")]
    assert [each[-1] for each in told] == [{"type": "ended", "status": "done"}] * 2
    assert types(seen) == ["user", "tool", "assistant", "ended", "user", "assistant", "ended"]
    assert [each["text"] for each in seen if each["type"] == "user"] == [SHIP["text"], "hello"]


async def test_a_message_that_waits_for_its_turn_when_the_server_is_asked_to_end_is_refused(folder):
    page = folder / "backend.py"
    page.write_text(page.read_text(encoding="utf-8").replace("tool_seconds=10", "tool_seconds=0.2"), encoding="utf-8")
    with Server(folder) as server:
        async with Client(server) as client, client.post("messages", **SHIP) as response:
            frames = Frames(response)
            await frames.read_until("tool")
            waiting = asyncio.ensure_future(send_and_get_status(client, text="hello", input_id="8"))
            async with client.watch() as other_page:  # the server has read by then what was sent before
                await other_page.read_until("tool")
            stopping = asyncio.get_running_loop().run_in_executor(None, server.stop)
            assert (await frames.read_until())[-1]["type"] == "waiting"
            assert await waiting == 503
            await stopping
    with Server(folder) as server:
        async with Client(server) as client:
            async with client.post("messages", text="hello", input_id="8") as response:
                assert types(await Frames(response).read_until()) == ["user", "delta", "assistant", "ended"]
            async with client.post("messages", **SHIP) as response:
                assert (await Frames(response).read_until())[-1] == {"type": "ended", "status": "done"}


async def send_and_get_status(client: Client, **message: str) -> int:
    async with client.post("messages", **message) as response:
        return response.status


async def test_what_cannot_be_done_has_a_status_and_says_why(client):
    async with client.post("resume") as response:
        assert (response.status, "use run() to begin it" in await response.text()) == (404, True)
    async with client.post("messages", text="hello") as response:
        await Frames(response).read_until()
    async with client.post("resume") as response:
        assert (response.status, "nothing to resume" in await response.text()) == (409, True)
    async with client.post("answers/nonsense", allow=True) as response:
        assert response.status == 409
    async with client.post("messages", text="hello", input_id="\ud800") as response:
        assert response.status == 422
    async with client.post("cancel") as response:
        assert await response.json() == {"cancelled": False}


async def test_a_user_has_sessions_that_no_other_user_sees(client):
    async with client.post("messages", text="hello") as response:
        await Frames(response).read_until()
    async with client.watch(user="ben") as theirs, client.watch() as ours:
        await ours.read_until("ended")
        async with client.post("messages", user="ben", text="hi") as response:
            await Frames(response).read_until()
        seen = await theirs.read_until("ended")
    assert [each["text"] for each in seen if each["type"] == "user"] == ["hi"]
    assert len(ours.ids) == 3


async def test_a_second_server_is_told_that_the_session_is_busy_and_can_cancel_it(folder):
    with Server(folder) as one, Server(folder) as other:
        async with Client(one) as driver, Client(other) as client:
            async with driver.post("messages", **SHIP) as response, client.watch() as page:
                frames = Frames(response)
                await frames.read_until("tool")
                async with client.post("messages", text="hello") as refused:
                    assert (refused.status, "is being driven by process" in await refused.text()) == (409, True)
                await page.read_until("tool")
                async with client.post("cancel") as cancelled:
                    assert await cancelled.json() == {"cancelled": True}
                assert (await frames.read_until("ended"))[-1]["status"] == "cancelled"
                assert (await page.read_until("ended"))[-1]["status"] == "cancelled"
            async with client.post("messages", text="hello") as response:
                assert types(await Frames(response).read_until())[-1] == "ended"
