"""The watchdog of the event loop: it names the tool that blocks, and is silent about those that do not."""

import asyncio
import functools
import logging
import re
import threading

import pytest

from perdure import Agent, ConfigError, tool
from perdure._tracing.collect.watchdog import LoopWatchdog, get_code_object, log_blocked_loop
from perdure.testing import ScriptedModel, call
from perdure.tracing import BlockedLoop, loop_watchdog
from tests.doubles import until

REPORTED = threading.Event()


@tool(effect="read")
async def block() -> str:
    """Block the loop until somebody has noticed."""
    return wait_here()


def wait_here():
    return "noticed" if REPORTED.wait(20) else "not noticed"


@tool(effect="read")
async def wait_politely() -> str:
    """Wait without blocking."""
    await asyncio.sleep(0.1)
    return "done"


@tool(effect="read")
def block_a_thread() -> str:
    """Block, on a thread."""
    threading.Event().wait(0.1)
    return "done"


async def use(*made, threshold_seconds=0.05):
    REPORTED.clear()
    reports = []

    def report(blocked):
        reports.append(blocked)
        if blocked.tool:  # on a machine that is busy the loop may be late before the tool is called
            REPORTED.set()

    agent = Agent(
        ScriptedModel(*made, "Done."),
        tools=[block, wait_politely, block_a_thread],
        extensions=[loop_watchdog(threshold_seconds, report)],
    )
    outcome = await agent.run("Go.")
    return reports, [result.text for message in outcome.new_messages for result in message.tool_results]


async def test_a_tool_that_blocks_the_loop_is_named_while_it_does():
    reports, texts = await use(call("block"))
    assert texts == ["noticed"]
    (reported,) = [each for each in reports if each.tool]
    assert reported.tool == "block"
    assert reported.place.endswith("in wait") or "wait_here" in reported.place
    assert re.match(r"the tool 'block' has blocked the event loop for \d+\.\d\d s", str(reported))


async def test_tools_that_wait_or_run_on_a_thread_are_not_reported():
    reports, texts = await use(call("wait_politely"), call("block_a_thread"), threshold_seconds=10)
    assert (reports, texts) == ([], ["done", "done"])


async def test_a_block_by_other_code_while_a_tool_runs_names_no_tool():
    reports = []
    noticed = threading.Event()

    def report(blocked):
        reports.append(blocked)
        noticed.set()

    started = asyncio.Event()
    free = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait for the test."""
        started.set()
        await free.wait()
        return "done"

    agent = Agent(ScriptedModel(call("wait"), "Done."), tools=[wait], extensions=[loop_watchdog(0.05, report)])
    run = asyncio.ensure_future(agent.run("Go."))
    await started.wait()
    assert noticed.wait(20)
    free.set()
    await run
    assert {each.tool for each in reports} == {""}  # more than one, if the machine is busy
    assert "the program has blocked" in str(reports[0])


def test_without_a_function_reports_are_warnings(caplog):
    with caplog.at_level(logging.WARNING, "perdure"):
        log_blocked_loop(BlockedLoop("slow", 0.3, "x.py:1 in f"))
    assert "the tool 'slow' has blocked the event loop for 0.30 s at x.py:1 in f" in caplog.text


def test_the_code_of_a_function_is_found_below_its_wrappers():
    @functools.wraps(wait_here)
    def wrapped():
        return wait_here()

    assert get_code_object(functools.partial(wrapped)) is wait_here.__code__
    assert get_code_object(len) is None


def test_a_threshold_is_above_zero():
    with pytest.raises(ConfigError, match="threshold_seconds"):
        LoopWatchdog(0)


async def test_the_thread_of_the_watchdog_lives_as_long_as_tools_run_and_keeps_no_process_alive():
    found: list[threading.Thread] = []
    before = set(threading.enumerate())

    @tool(effect="read")
    async def look() -> str:
        """Look at the threads."""
        found.extend(each for each in threading.enumerate() if each.name == "perdure-watchdog" and each not in before)
        return "done"

    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], extensions=[loop_watchdog(60)])
    await agent.run("Go.")
    (thread,) = found
    assert thread.daemon
    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()


def find_new_thread(before):
    (thread,) = [each for each in threading.enumerate() if each.name == "perdure-watchdog" and each not in before]
    return thread


async def test_the_thread_ends_also_if_the_last_call_has_ended_while_it_looked_at_the_loop(monkeypatch):
    looking, ended, before = threading.Event(), threading.Event(), set(threading.enumerate())

    def look(*_):
        looking.set()
        assert ended.wait(20)

    monkeypatch.setattr(LoopWatchdog, "_look", look)
    with LoopWatchdog(60)._watch("look", None):
        thread = find_new_thread(before)
        assert await asyncio.to_thread(looking.wait, 20)
    ended.set()
    await asyncio.to_thread(thread.join, 20)
    assert not thread.is_alive()


async def test_a_loop_whose_calls_have_ended_does_not_keep_the_thread(monkeypatch):
    asked, before, loop = threading.Event(), set(threading.enumerate()), asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *_: asked.set())
    with LoopWatchdog(0.01, lambda _: None)._watch("look", None):
        thread = find_new_thread(before)
        assert asked.wait(20)
    thread.join(20)
    assert not thread.is_alive()


def test_a_loop_that_stops_during_a_call_is_neither_reported_nor_waited_for():
    reports: list[BlockedLoop] = []
    watchdog = LoopWatchdog(0.05, reports.append)

    async def call_and_stop() -> None:
        with watchdog._watch("look", None):
            asyncio.get_running_loop().stop()
            await asyncio.Event().wait()

    stopped = asyncio.new_event_loop()
    left = stopped.create_task(call_and_stop())
    stopped.run_forever()
    (watched,) = watchdog._running.values()
    watchdog._look(watched)  # it returns
    assert reports == []
    left.cancel()
    stopped.run_until_complete(asyncio.wait([left]))
    stopped.close()


async def test_a_function_for_reports_that_fails_does_not_end_the_watchdog(caplog):
    told = threading.Event()

    def fail(_):
        told.set()
        raise ValueError("no report")

    watchdog = LoopWatchdog(0.01, fail)
    with watchdog._watch("look", None):
        assert told.wait(20)  # it blocks the loop
        told.clear()
        await until(lambda: told.wait(0.05))  # it blocks the loop again, after a sign of life
    assert caplog.messages[:1] == ["the function that gets the reports of the watchdog has failed"]


def test_a_report_says_who_where_and_what_to_do():
    advice = "make it a plain function, which runs on a thread, or mark it @tool(isolate=True)"
    assert str(BlockedLoop("slow", 0.256, "x.py:1 in f")) == (
        f"the tool 'slow' has blocked the event loop for 0.26 s at x.py:1 in f: {advice}"
    )
    assert str(BlockedLoop("", 1.0, "x.py:1 in f")) == (
        f"the program has blocked the event loop for 1.00 s at x.py:1 in f: {advice}"
    )


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_a_threshold_that_is_no_time_is_refused(seconds):
    with pytest.raises(ConfigError) as refused:
        LoopWatchdog(seconds)
    assert str(refused.value) == f"LoopWatchdog(threshold_seconds={seconds!r}): give a number above zero"
