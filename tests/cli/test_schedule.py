"""`perdure schedule`: schedules are added, listed, served, run now, cancelled and removed; firings can be listed."""

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure._cli.work.schedule import _format_firing, _format_status
from perdure._core.values import faults
from perdure.background import Firing, Schedule, Scheduler, ScheduleStatus
from tests.cli.process import PATIENCE, STAND_INS

ADD = ("schedule", "add", "calc", "--prompt", "Calculate 6 * 7")


def rows(result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_schedule_is_added_listed_and_removed(perdure):
    added = perdure(*ADD, "--cron", "0 9 * * 1-5", "--session", "numbers", "--late", "2h", "--retries", "1")
    assert (added.exit_code, added.stderr.splitlines()[0]) == (
        0,
        "schedule 'calc' is added: cron 0 9 * * 1-5 (UTC)",
    )
    assert perdure("schedule", "list").stdout == "calc  cron 0 9 * * 1-5 (UTC)\n"
    (row,) = rows(perdure("schedule", "list", "--json"))
    assert (row["schedule"]["late_seconds"], row["schedule"]["session"], row["is_stored"]) == (7200, "numbers", True)
    assert rows(perdure("schedule", "remove", "calc", "--json")) == [{"name": "calc"}]
    assert perdure("schedule", "history", "calc").exit_code == 2
    again = perdure("schedule", "remove", "calc")
    assert (again.exit_code, again.stderr) == (
        2,
        "error: there is no schedule 'calc' in the store; see perdure schedule list\n",
    )
    assert "there is no schedule here" in perdure("schedule", "list").stderr


def test_a_schedule_is_run_now_and_its_firing_listed(perdure):
    perdure(*ADD)
    result = perdure("schedule", "run-now", "calc", "--json")
    (firing,) = rows(result)
    assert (result.exit_code, firing["status"], firing["session_id"]) == (0, "finished", "calc")
    assert "42" in perdure("sessions", "show", "calc").stdout
    (listed,) = rows(perdure("schedule", "history", "calc", "--json"))
    assert listed == firing
    assert f"calc  {firing['firing_id']}  finished session calc" in perdure("schedule", "history").stdout


def test_a_trigger_waits_for_a_process_that_serves(perdure):
    perdure(*ADD)
    (pending,) = rows(perdure("schedule", "run-now", "calc", "for me", "--no-wait", "--json"))
    assert pending["status"] == "pending"
    assert perdure("schedule", "list").stdout == "calc  when triggered  1 triggered\n"
    kinds = [row["kind"] for row in rows(perdure("schedule", "serve", "--once", "--json"))]
    assert kinds == ["fired", "finished"]
    assert perdure("schedule", "serve", "--once").stdout == ""
    assert perdure("schedule", "list").stdout == "calc  when triggered  last finished\n"


def test_calls_that_need_approval_are_denied_and_reported(perdure, tmp_path):
    prompt = 'Write "hello" to a.txt'
    perdure("schedule", "add", "note", "--prompt", prompt)
    (firing,) = rows(perdure("schedule", "run-now", "note", "--no-coding", "--json"))
    assert firing["denied"], firing
    assert not (tmp_path / "a.txt").exists()
    assert "denied: write_text" in perdure("schedule", "history", "note").stdout
    (firing,) = rows(perdure("schedule", "run-now", "note", "--no-coding", "--allow", "write_text", "--json"))
    assert "denied" not in firing
    assert (tmp_path / "a.txt").exists()


def test_schedules_of_the_configuration_need_trust_and_cannot_be_removed_here(perdure, tmp_path):
    path = tmp_path / "perdure.toml"
    path.write_text('[[schedule]]\nname = "calc"\nevery = "1h"\nprompt = "Calculate 6 * 7"\n')
    refused = perdure("schedule", "list")
    assert refused.exit_code == 2
    assert "it needs to be trusted for schedule" in refused.stderr
    assert perdure("trust", "--yes", str(path)).exit_code == 0
    assert perdure("schedule", "list").stdout == "calc  every 1h\n"
    assert [row["kind"] for row in rows(perdure("schedule", "serve", "--once", "--json"))] == ["armed"]
    assert "remove it there" in perdure("schedule", "remove", "calc").stderr
    assert "use another name" in perdure(*ADD).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "x", "--every", "5q", "-p", "y"), "'5q' is no interval"),
        (("add", "x", "--every", "5m", "--cron", "* * * * *", "-p", "y"), "keep one of 'every' and 'cron'"),
        (("add", "x", "--cron", "61 * * * *", "-p", "y"), "'61' is no minute"),
        (("add", "x", "--at", "2001-01-01T00:00Z", "-p", "y"), "has passed"),
        (("add", "x", "--timezone", "UTC", "-p", "y"), "'timezone' is for 'cron' and 'at'"),
        (("add", "a b", "-p", "y"), "letters, digits"),
        (("add", "x", "--every", "5m"), "give a prompt, or a skill"),
        (("run-now", "x"), "there is no schedule 'x'"),
        (("history", "x"), "there is no schedule 'x'"),
        (("cancel", "x"), "there is no schedule 'x'"),
    ],
)
def test_what_is_wrong_is_refused_with_advice(perdure, arguments, message):
    result = perdure("schedule", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_without_a_run_there_is_nothing_to_cancel(perdure):
    perdure(*ADD)
    result = perdure("schedule", "cancel", "calc")
    assert (result.exit_code, result.stderr) == (1, "schedule 'calc' has no active run\n")
    result = perdure("schedule", "cancel", "calc", "--json")
    assert (result.exit_code, rows(result)) == (1, [{"name": "calc", "cancelled": False}])


def test_a_run_in_another_process_is_cancelled_and_its_schedule_stays(perdure, shell):
    perdure(*ADD)
    perdure("schedule", "run-now", "calc", "--no-wait")
    with shell.started("schedule", "serve", "--model", "odd:wait", "--json", program=STAND_INS) as process:
        await_started_call(perdure, "calc")
        result = perdure("schedule", "cancel", "calc", "--json")
        assert (result.exit_code, rows(result)) == (0, [{"name": "calc", "cancelled": True}])
        kinds = [json.loads(process.stdout.readline())["kind"] for _ in range(2)]
        assert kinds == ["fired", "cancelled"]
    assert perdure("schedule", "list").stdout == "calc  when triggered  last cancelled\n"


def await_started_call(perdure, session_id: str) -> None:
    """Return when a tool call of a session has begun, in whatever process."""
    end = time.monotonic() + PATIENCE
    while "tool_started" not in perdure("sessions", "show", session_id, "--json").stdout:
        assert time.monotonic() < end, "no call has begun"


def test_names_are_completed(perdure):
    import click

    from perdure._cli.work.schedule import complete_schedule_name, remove

    perdure(*ADD)
    context = click.Context(remove)
    assert complete_schedule_name(context, remove.params[0], "ca") == ["calc"]
    assert complete_schedule_name(context, remove.params[0], "x") == []
    context.params["store"] = "nonsense:"
    assert complete_schedule_name(context, remove.params[0], "") == []


def test_help_has_examples(perdure):
    for name in ("list", "add", "remove", "run-now", "cancel", "serve", "history"):
        assert f"perdure schedule {name}" in perdure("schedule", name, "--help").stdout
    assert "perdure schedule serve" in perdure("schedule").stdout


def test_a_killed_process_leaves_its_firing_to_the_next_and_sigterm_ends_it_cleanly(shell):
    shell.run(*ADD)
    shell.run("schedule", "run-now", "calc", "--no-wait")
    killed = shell.run("schedule", "serve", environment={faults.FAULTS_VARIABLE: "loop.intent_stored=kill"})
    assert killed.returncode == -signal.SIGKILL
    with shell.started("schedule", "serve", "--json") as process:
        kinds = [json.loads(process.stdout.readline())["kind"] for _ in range(2)]
        assert kinds == ["resumed", "finished"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_that_nothing_was_fired_yet_is_said_to_people_only(perdure):
    perdure(*ADD)
    told = perdure("schedule", "history")
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "no schedule has been fired yet\n")
    assert perdure("schedule", "history", "calc").stderr == "no schedule has been fired yet\n"
    told = perdure("schedule", "history", "--json")
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "")


def test_what_is_served_is_printed_with_its_time_unless_it_is_quiet(perdure):
    perdure(*ADD)
    perdure("schedule", "run-now", "calc", "--no-wait")
    served = perdure("schedule", "serve", "--once")
    assert (served.exit_code, served.stderr) == (0, "")
    (fired, finished) = served.stdout.splitlines()
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(rf"{moment} calc trigger-\w+ fired", fired), fired
    assert re.fullmatch(rf"{moment} calc trigger-\w+ finished.*", finished), finished
    perdure("schedule", "run-now", "calc", "--no-wait")
    served = perdure("schedule", "serve", "--once", "--quiet")
    assert (served.exit_code, served.stdout, served.stderr) == (0, "", "")
    assert len(rows(perdure("schedule", "history", "--json"))) == 2


def test_that_there_is_no_schedule_to_serve_is_said_unless_it_is_served_once(perdure, monkeypatch):
    async def serve(_: Any, **__: Any) -> AsyncIterator[Any]:
        nothing: list[Any] = []
        for record in nothing:
            yield record

    monkeypatch.setattr(Scheduler, "serve", serve)
    note = "there is no schedule yet; those that are added will be served\n"
    for arguments, told in (((), note), (("--once",), ""), (("--quiet",), "")):
        result = perdure("schedule", "serve", *arguments)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", told)
    perdure(*ADD)
    assert perdure("schedule", "serve").stderr == ""


def test_ctrl_c_ends_what_is_served(perdure, monkeypatch):
    ended: list[str] = []

    async def serve(_: Any, **__: Any) -> AsyncIterator[Any]:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        yield None

    monkeypatch.setattr(Scheduler, "serve", serve)
    result = perdure("schedule", "serve", "--once")
    assert (result.exit_code, result.stdout, ended) == (130, "", ["cancelled"])
    assert result.stderr == "cancelling the run; interrupt once more to quit at once\n\n"


FIRING = Firing(schedule="calc", firing_id="f1", status="finished", started_at=1.5)


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({}, "calc  when triggered"),
        ({"next_due": 60.0, "last": FIRING}, "calc  when triggered  next 1970-01-01T00:01:00Z  last finished"),
        ({"next_due": 0.0}, "calc  when triggered  next 1970-01-01T00:00:00Z"),
        ({"running": FIRING, "last": FIRING, "pending": 1}, "calc  when triggered  running  1 triggered"),
    ],
)
def test_the_row_of_a_schedule(facts: dict[str, Any], shown: str) -> None:
    status = ScheduleStatus(schedule=Schedule(name="calc", prompt="Go."), is_stored=True, **facts)
    assert _format_status(status, 4) == shown
    assert _format_status(status, 6) == shown.replace("calc", "calc  ")


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({}, ""),
        ({"count": 2, "reason": "busy"}, "x2 (busy)"),
        ({"session_id": "s", "resumed": 3, "denied": ("a", "b")}, "session s resumed 3x denied: a, b"),
        ({"unknown_effects": ("c", "d")}, "unknown: c, d"),
    ],
)
def test_the_row_of_a_firing(facts: dict[str, Any], shown: str) -> None:
    firing = Firing(schedule="calc", firing_id="f1", status="finished", started_at=1.5, **facts)
    assert _format_firing(firing) == f"1970-01-01T00:00:01Z  calc  f1  finished {shown}"
