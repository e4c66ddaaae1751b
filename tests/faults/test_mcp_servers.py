"""MCP servers that misbehave in every way, hosts that are killed, and connections that come and go: nothing is left."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perdure import Agent, PerdureError, Status
from perdure._mcp.client.client import StartAndLoginCallbacks
from perdure._mcp.servers import start_process
from perdure.mcp import McpClient, McpServers
from perdure.testing import ScriptedModel

pytestmark = [pytest.mark.packages("mcp"), pytest.mark.faults]
pytest.importorskip("mcp")

from tests.mcp.http_server import reach, serve_http  # noqa: E402 - after the check
from tests.mcp.servers import count_descriptors, is_alive, read_lines, scripted, wait_until  # noqa: E402

LONG = os.environ.get("PERDURE_SEARCH") == "long"
CALLS = 400 if LONG else 40
CYCLES = 1_000 if LONG else 25

PIPE_BEHAVIOURS = {
    "kind": 0, "dies_before_answer": 0, "dies_once": 0, "hangs": 0.05, "garbage": 0, "wrong_id": 0.05, "double": 0,
    "bad_result": 0, "bad_error": 0.05, "rpc_error": 0, "exit_after": 0, "storm": 0, "long_line": 0,
    "initialize_hangs": 0.05, "list_hangs": 0.05, "never_starts": 0, "endless_pages": 0, "list_differs": 0,
}  # fmt: skip
"""Behaviours, with the seconds after which a request is given up; 0 for plenty."""
FLOODS = {"storm", "long_line"}
HTTP_BEHAVIOURS = ["500", "session", "html", "202", "redirect", "cut", "gzip", "drop", "sse_ends", "rpc_500"]


async def call_many(client, count, *, at_once=8):
    """Make calls, some at a time, and some of them cancelled; return what came of them."""
    outcomes = []

    async def call_one(number):
        task = asyncio.ensure_future(client.call_tool("echo", {"text": str(number)}, is_read=number % 2 == 0))
        if number % 5 == 4:
            await asyncio.sleep(0)
            task.cancel()
        try:
            result = await task
            outcomes.append(result.content[0].text if result.content else "")
        except (PerdureError, asyncio.CancelledError) as error:
            outcomes.append(type(error).__name__)

    for start in range(0, count, at_once):
        await asyncio.gather(*[call_one(number) for number in range(start, min(start + at_once, count))])
    return outcomes


def take_stock():
    gc.collect()
    return len(asyncio.all_tasks()), count_descriptors()


def list_what_is_open():
    tasks = [repr(each) for each in asyncio.all_tasks()]
    return tasks, [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]


async def check_nothing_is_left(before, folder):
    try:
        await wait_until(lambda: take_stock() <= before)
    except TimeoutError:
        pytest.fail(f"{before} before, and now {take_stock()}: {list_what_is_open()}")
    for pid in read_lines(folder, "starts"):
        await wait_until(lambda pid=int(pid): not is_alive(pid))


@pytest.fixture(autouse=True)
def unlimited_starts(monkeypatch):
    monkeypatch.setattr("perdure._mcp.client.client.MOST_STARTS", 10**9)


@pytest.mark.parametrize("behaviour", PIPE_BEHAVIOURS)
async def test_no_call_to_a_hostile_server_hangs_or_leaves_anything(behaviour, tmp_path):
    seconds = PIPE_BEHAVIOURS[behaviour] or 60
    start_seconds = seconds if behaviour == "initialize_hangs" else 60
    server = scripted(behaviour, tmp_path, call_timeout_seconds=seconds, start_timeout_seconds=start_seconds)
    before = take_stock()
    client = McpClient(server, StartAndLoginCallbacks(start_process))
    count = CALLS // 8 if behaviour in FLOODS else CALLS
    async with asyncio.timeout(600 if LONG else 120):
        outcomes = await call_many(client, count)
        await client.close()
    assert len(outcomes) == count
    await check_nothing_is_left(before, tmp_path)


@pytest.mark.parametrize("behaviour", HTTP_BEHAVIOURS)
async def test_no_call_to_a_hostile_server_over_http_hangs_or_leaves_anything(behaviour):
    async with serve_http(behaviour) as server:
        before = take_stock()
        client = McpClient(reach(server), StartAndLoginCallbacks(start_process))
        async with asyncio.timeout(600 if LONG else 120):
            outcomes = await call_many(client, CALLS)
            await client.close()
        assert len(outcomes) == CALLS
        await wait_until(lambda: take_stock()[0] <= before[0] + 2)  # the server of the test has tasks of its own


async def test_connections_that_come_and_are_cancelled_leave_nothing(tmp_path):
    before = take_stock()
    for cycle in range(CYCLES):
        client = McpClient(scripted("kind", tmp_path), StartAndLoginCallbacks(start_process))
        task = asyncio.ensure_future(client.list_tools())
        for _ in range(cycle % 25):
            await asyncio.sleep(0.002)
        task.cancel()
        await asyncio.wait([task])
        await client.close()
    await check_nothing_is_left(before, tmp_path)


HOST = """
import asyncio, sys
from perdure.mcp import McpServers
from tests.mcp.servers import scripted

async def main(folder):
    servers = McpServers(*[scripted("ignores_end", folder, name=f"s{each}") for each in range(20)])
    async with servers:
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main(sys.argv[1]))
"""


def test_when_the_host_is_killed_no_server_survives(tmp_path):
    root = Path(__file__).parents[2]
    host = subprocess.Popen([sys.executable, "-c", HOST, str(tmp_path)], cwd=root, stdout=subprocess.PIPE)
    assert host.stdout is not None
    try:
        assert host.stdout.readline() == b"ready\n"
        pids = [int(each) for each in read_lines(tmp_path, "starts")]
        assert len(pids) == 20
        assert all(map(is_alive, pids))
    finally:
        host.send_signal(signal.SIGKILL)
        host.wait()
        host.stdout.close()
    killed = time.monotonic()
    while any(map(is_alive, pids)) and time.monotonic() < killed + 30:
        time.sleep(0.02)
    print(f"the last of {len(pids)} servers ended {time.monotonic() - killed:.2f} s after its host")  # noqa: T201
    assert not any(map(is_alive, pids))


CALLING_HOST = """
import asyncio, sys
from perdure import Agent
from perdure.mcp import McpServers
from perdure.testing import ScriptedModel, call
from tests.mcp.servers import scripted

folder, behaviour = sys.argv[1:]
extension = McpServers(scripted(behaviour, folder, permission=False)).extension
model = ScriptedModel(call("s__act", text="a"), "done")
agent = Agent(model, extensions=[extension], store=f"sqlite:{folder}/a.db", answer_timeout_seconds=600)
asyncio.run(agent.session("x").run("go"))
"""


@pytest.mark.parametrize(("behaviour", "afterwards"), [("hangs", "kind"), ("asks", "never_starts")])
async def test_a_call_during_which_the_host_was_killed_is_unknown_and_not_made_again(behaviour, afterwards, tmp_path):
    root = Path(__file__).parents[2]
    words = [sys.executable, "-c", CALLING_HOST, str(tmp_path), behaviour]
    host = await asyncio.create_subprocess_exec(*words, cwd=root)
    try:
        await wait_until(lambda: read_lines(tmp_path, "calls"), 60)
    finally:
        host.kill()
        await host.wait()
    extension = McpServers(scripted(afterwards, tmp_path, permission=False)).extension
    agent = Agent(ScriptedModel("done"), extensions=[extension], store=f"sqlite:{tmp_path}/a.db")
    outcome = await agent.session("x").resume()
    (result,) = [each for message in outcome.messages for each in message.tool_results]
    assert result.status is Status.UNKNOWN
    assert read_lines(tmp_path, "calls") == ["act a"]
