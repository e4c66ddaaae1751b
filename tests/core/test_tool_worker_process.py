"""Isolated tools: they run in a worker process, which is killed when a call is cancelled or too late."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from perdure import Agent, ConfigError, Limits, ToolContext, tool
from perdure._core.tools.worker import main, process
from perdure._core.tools.worker.process import MAX_IDLE_WORKERS, WORKERS, ToolWorkerProcess, locate_isolated_function
from perdure.testing import ScriptedModel, call
from perdure.tools import tool_from_schema
from tests.core import isolated_tools


@pytest.fixture(autouse=True)
def _no_worker_is_left():
    yield
    WORKERS.close()


async def use(*made):
    tools = [getattr(isolated_tools, name) for name in ("add", "find_process", "fail", "fail_oddly", "compute")]
    outcome = await asyncio.wait_for(Agent(ScriptedModel(*made, "Done."), tools=tools).run("Go."), 50)
    return [result for message in outcome.new_messages for result in message.tool_results]


async def test_an_isolated_tool_runs_in_another_process_which_is_used_again():
    results = await use(call("add", a=2, b=3), call("find_process"), call("find_process"))
    assert results[0].text == "5"
    assert results[1].text == results[2].text != str(os.getpid())


async def test_errors_of_an_isolated_tool_are_those_of_a_tool():
    texts = [
        each.text for each in await use(call("fail", kind="tool"), call("fail", kind="system exit"), call("fail_oddly"))
    ]
    assert texts[0] == "no such city"
    assert "SystemExit" in texts[1]
    assert "UnpicklableError: odd" in texts[2]


async def test_a_value_that_cannot_be_sent_is_an_error_that_says_so():
    (result,) = await use(call("fail", kind="return"))
    assert "must return what can be pickled, and function cannot" in result.text


async def test_a_process_that_ends_in_the_middle_is_an_error_and_the_next_call_gets_another():
    broken, fine = await use(call("fail", kind="exit"), call("add", a=1, b=1))
    assert broken.text == "the process of the tool has ended in the middle of the call"
    assert fine.text == "2"


async def wait_for_processes(path):
    async with asyncio.timeout(30):
        while not (path.exists() and len(path.read_text().split()) == 2):  # noqa: ASYNC110 - written by another process
            await asyncio.sleep(0.01)
    return [int(each) for each in path.read_text().split()]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


async def wait_until_gone(pids):
    """Wait for processes that were sent SIGKILL: the kernel ends them a little after the signal."""
    async with asyncio.timeout(30):
        while any(map(is_running, pids)):  # noqa: ASYNC110 - they tell nobody that they end
            await asyncio.sleep(0.01)


@pytest.mark.budget
async def test_a_tool_that_computes_is_gone_within_a_fifth_of_a_second_of_a_cancel(tmp_path):
    session = Agent(
        ScriptedModel(call("compute", path=str(tmp_path / "pids"))), tools=[isolated_tools.compute]
    ).session()
    run = asyncio.ensure_future(session.run("Go."))
    pids = await wait_for_processes(tmp_path / "pids")
    begun = time.monotonic()
    run.cancel()
    while any(map(is_running, pids)):
        assert time.monotonic() - begun < 0.2
        await asyncio.sleep(0.005)
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_tool_is_killed_at_its_deadline(tmp_path):
    agent = Agent(
        ScriptedModel(call("compute", path=str(tmp_path / "pids")), "Done."),
        tools=[isolated_tools.compute],
        limits=Limits(tool_timeout_seconds=1.5),
    )
    run = asyncio.ensure_future(agent.run("Go."))
    pids = await wait_for_processes(tmp_path / "pids")
    outcome = await run
    assert outcome.new_messages[2].tool_results[0].status == "timed_out"
    await wait_until_gone(pids)


HOST = """
import asyncio, sys
from perdure import Agent
from perdure.testing import ScriptedModel, call
from tests.core.isolated_tools import compute
asyncio.run(Agent(ScriptedModel(call("compute", path=sys.argv[1])), tools=[compute]).run("Go."))
"""


def start_host(*arguments):
    return subprocess.Popen([sys.executable, "-c", HOST, *arguments], cwd=Path(__file__).parents[2])


async def test_a_host_that_is_killed_leaves_no_worker(tmp_path):
    host = start_host(str(tmp_path / "pids"))
    try:
        pids = await wait_for_processes(tmp_path / "pids")
    finally:
        host.send_signal(signal.SIGKILL)
        host.wait()
    await wait_until_gone(pids)


SCRIPT = """
from perdure import Agent, tool
from perdure.testing import ScriptedModel, call

@tool(isolate=True)
def double(n: int) -> int:
    '''Double a number.'''
    return 2 * n

if __name__ == "__main__":
    outcome = Agent(ScriptedModel(call("double", n=21), "Done."), tools=[double]).run_sync("Go.")
    print(outcome.new_messages[2].tool_results[0].text)
"""


def test_a_tool_of_the_main_script_can_be_isolated(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("42\n", "")


def test_a_main_script_that_runs_agents_when_it_is_imported_ends_the_worker(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT.replace('if __name__ == "__main__":', "if True:"))
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stdout == "the process of the tool has ended in the middle of the call\n"
    assert "put what runs agents below if __name__ == '__main__'" in done.stderr


def test_the_main_script_is_loaded_once_and_only_for_its_functions(tmp_path, monkeypatch):
    script = tmp_path / "main_script.py"
    script.write_text("def double(n): return 2 * n\n")
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setitem(sys.modules, "__mp_main__", sys.modules["__main__"])
    main.apply_host_settings({"init_main_from_path": str(script)})
    assert main.main_script == {"init_main_from_path": str(script)}
    assert main.call_function("__main__", "double", {"n": 2}) == 4
    assert main.main_script == {}
    assert main.call_function("__main__", "double", {"n": 3}) == 6


def test_a_worker_starts_no_worker_while_it_loads_the_main_script(monkeypatch):
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    main.exit_if_importing_main()
    assert ended == []
    monkeypatch.setattr(main, "is_loading_main", [True])
    main.exit_if_importing_main()
    assert ended == [1]


def test_a_tool_that_no_worker_could_find_is_refused_where_it_is_written():
    def local(n: int) -> int:
        """A function in a function."""
        return n

    with pytest.raises(ConfigError, match="top level of a module"):
        tool(isolate=True)(local)
    with pytest.raises(ConfigError, match="'context' for the ToolContext"):
        locate_isolated_function(use, "context", None)
    with pytest.raises(ConfigError, match="only functions marked @tool"):
        tool_from_schema("x", "y", {"type": "object"}, len, isolate=True)
    assert ToolContext is not None


@pytest.mark.parametrize(
    ("module", "name", "receiver"),
    [("m", "f", "self"), (None, "f", None), (7, "f", None), ("m", "", None), ("m", "f.<locals>.g", None)],
    ids=["method", "no module", "a module without a name", "no name", "local"],
)
def test_a_function_without_a_place_of_its_own_is_refused(module, name, receiver):
    function = SimpleNamespace(__module__=module, __qualname__=name)
    with pytest.raises(ConfigError, match="only functions at the top level of a module"):
        locate_isolated_function(function, None, receiver)


def test_a_function_is_found_by_its_module_and_name():
    assert locate_isolated_function(use, None, None) == (use.__module__, "use")


def test_a_system_without_process_groups_cannot_isolate(monkeypatch):
    monkeypatch.delattr(os, "fork")
    with pytest.raises(ConfigError, match="no process groups"):
        locate_isolated_function(use, None, None)


# -- the pool ----------------------------------------------------------------------------------------------------------


def wait_for(worker):
    assert worker._process is not None
    worker._process.wait(10)


def test_only_so_many_workers_are_kept():
    workers = [ToolWorkerProcess() for _ in range(MAX_IDLE_WORKERS + 1)]
    for each in workers:
        assert each.call(("operator", "add", {}))[0] is False  # it takes no names: an error, and an answer
        WORKERS.give_back(each)
    assert [each.is_alive for each in workers] == [True] * MAX_IDLE_WORKERS + [False]
    os.kill(workers[1].pid, signal.SIGKILL)
    wait_for(workers[1])
    assert WORKERS.take() is workers[0]
    workers[0].kill()


def test_a_worker_that_was_killed_makes_no_call():
    worker = ToolWorkerProcess()
    assert (worker.pid, worker.is_alive) == (0, False)
    worker.kill()
    with pytest.raises(EOFError):
        worker.call(("operator", "add", {}))


def test_a_worker_that_is_gone_cannot_be_asked():
    worker = ToolWorkerProcess()
    worker.call(("operator", "add", {}))
    os.killpg(worker.pid, signal.SIGKILL)
    wait_for(worker)
    with pytest.raises(EOFError):
        worker.call(("operator", "add", {"x": "y" * 1_000_000}))
    worker.kill()
    worker.kill()


# -- the program of the worker, in this process ------------------------------------------------------------------------


def frames(*values):
    stream = io.BytesIO()
    for value in values:
        main.write_frame(stream, value)
    stream.seek(0)
    return stream


def test_the_worker_answers_until_the_pipe_is_closed():
    replies = io.BytesIO()
    requests = frames({}, ("math", "sqrt", {}), ("tests.core.isolated_tools", "add", {"a": 1, "b": 2}))
    main.serve_requests(requests, replies)
    replies.seek(0)
    failed, succeeded = main.read_frame(replies), main.read_frame(replies)
    assert failed[0] is False
    assert succeeded == (True, 3)


def test_the_worker_calls_async_functions_and_tells_what_cannot_be_pickled():
    name = "tests.core.isolated_tools"
    replies = io.BytesIO()
    requests = frames({}, (name, "find_process", {}), (name, "fail", {"kind": "x"}), (name, "fail_oddly", {}))
    main.serve_requests(requests, replies)
    replies.seek(0)
    assert main.read_frame(replies) == (True, os.getpid())
    assert "function cannot" in str(main.read_frame(replies)[1])
    assert "odd" in str(main.read_frame(replies)[1])


@pytest.mark.parametrize("cut", [b"", b"\0\0\0", b"\0\0\0\0\0\0\0\5abc"])
def test_a_frame_that_is_cut_off_is_the_end(cut):
    with pytest.raises(EOFError):
        main.read_frame(io.BytesIO(cut))


def test_the_worker_is_killed_when_the_host_closes_the_pipe(monkeypatch):
    read, write = os.pipe()
    os.close(write)
    killed = []
    monkeypatch.setattr(os, "killpg", lambda *given: killed.append(given))
    main.kill_worker_after_host(read, 5, (os.dup(read),))
    assert killed == [(5, signal.SIGKILL)]
    monkeypatch.setattr(os, "fork", lambda: 0)
    main.end_with_host(read, ())
    assert len(killed) == 2


def test_the_worker_begins_by_taking_its_pipes(monkeypatch):
    monkeypatch.setattr(main, "end_with_host", lambda _: None)
    kept = [os.dup(each) for each in (0, 1)]
    read, write = os.pipe()
    os.close(write)
    try:
        os.dup2(read, 0)
        main.run(5)
    finally:
        for number, each in enumerate(kept):
            os.dup2(each, number)
            os.close(each)
        os.close(read)
    assert process.WORKERS is WORKERS


def test_the_parent_goes_on_when_the_watching_process_is_started(monkeypatch):
    read, write = os.pipe()
    monkeypatch.setattr(os, "fork", lambda: 77)
    main.end_with_host(read)
    with pytest.raises(OSError):
        os.fstat(read)
    os.close(write)
