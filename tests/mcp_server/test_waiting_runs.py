"""Runs that wait for a person: how long their caller waits, and what ends them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import UsageError
from perdure._mcp.server import agents
from perdure._mcp.server.agents import OpenQuestions, WaitingRun, WaitingRuns
from perdure.events import QuestionAnswered, QuestionAsked


def asked(ask_id) -> Any:
    return SimpleNamespace(event=QuestionAsked(ask_id, "slot"))


def answered(ask_id) -> Any:
    return SimpleNamespace(event=QuestionAnswered(ask_id))


def ids(questions):
    return [each.ask_id for each in questions.open]


def future(result: Any = None) -> Any:
    made = asyncio.get_running_loop().create_future()
    if isinstance(result, Exception):
        made.set_exception(result)
    elif result is not None:
        made.set_result(result)
    return made


async def test_a_question_is_open_until_its_answer():
    questions = OpenQuestions()
    other: Any = SimpleNamespace(event="something else")
    questions.note_event(other)
    assert not questions.changed.is_set()
    questions.note_event(asked("a"))
    assert questions.changed.is_set()
    questions.note_event(asked("b"))
    questions.changed.clear()
    questions.note_event(answered("a"))
    assert (ids(questions), questions.changed.is_set()) == (["b"], True)
    questions.note_event(answered("unknown"))
    assert ids(questions) == ["b"]


async def test_a_run_is_outdated_when_it_has_ended_and_nobody_needs_its_result():
    cancelled = future()
    cancelled.cancel()
    runs = {
        "in progress": future(),
        "cancelled": cancelled,
        "failed": future(ValueError("x")),
        "waits again": future(SimpleNamespace(status="waiting")),
        "done": future(SimpleNamespace(status="finished")),
        "other": future("text"),
    }
    outdated = {
        name: tuple(WaitingRun(run, OpenQuestions()).is_outdated(has_task=each) for each in (True, False))
        for name, run in runs.items()
    }
    assert outdated == {
        "in progress": (False, False),
        "cancelled": (True, True),
        "failed": (True, False),
        "waits again": (True, True),
        "done": (True, False),
        "other": (True, False),
    }


async def test_a_run_without_questions_is_waited_for_and_one_with_a_question_only_for_a_while(monkeypatch):
    monkeypatch.setattr(agents, "ANSWER_SECONDS", 0.01)
    run, questions, others = future(), OpenQuestions(), WaitingRuns(1)
    waiting = asyncio.ensure_future(WaitingRun(run, questions).wait(others))
    questions.note_event(asked("a"))
    assert await waiting is False
    assert not run.done()
    waiting = asyncio.ensure_future(WaitingRun(run, questions).wait(others))
    await asyncio.sleep(0)
    questions.note_event(answered("a"))
    run.set_result("x")
    assert await waiting is True
    assert await WaitingRun(run, questions).wait(others) is True


async def test_a_run_ends_when_too_many_wait_already(monkeypatch):
    monkeypatch.setattr(agents, "ANSWER_SECONDS", 0.0)
    run, questions, others = future(), OpenQuestions(), WaitingRuns(1)
    others.check_room()
    others.add("s", WaitingRun(future(), OpenQuestions()))
    questions.note_event(asked("a"))
    with pytest.raises(UsageError) as caught:
        await WaitingRun(run, questions).wait(others)
    assert str(caught.value) == "1 conversations of this client wait for a person: this one was cancelled"
    assert run.cancelled()


async def test_a_run_is_cancelled_with_its_caller():
    run = future()
    waiting = asyncio.ensure_future(WaitingRun(run, OpenQuestions()).wait(WaitingRuns(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert run.cancelled()


async def test_a_waiting_run_is_taken_once():
    runs, run = WaitingRuns(2), WaitingRun(future(), OpenQuestions())
    assert runs.take("s") is None
    runs.add("s", run)
    assert runs.take("other") is None
    assert runs.take("s") is run
    assert runs.take("s") is None


async def test_runs_are_cancelled_from_another_thread_and_stay_to_be_asked_for():
    runs, first, second = WaitingRuns(2), future(), future()
    runs.cancel()  # there is none yet
    runs.add("a", WaitingRun(first, OpenQuestions()))
    runs.add("b", WaitingRun(second, OpenQuestions()))
    await asyncio.to_thread(runs.cancel)
    await asyncio.wait([first, second])
    assert (first.cancelled(), second.cancelled()) == (True, True)
    assert runs.take("a") is not None


async def test_all_runs_have_ended_when_the_server_has():
    runs, failed = WaitingRuns(3), future(ValueError("never read"))
    ended: list[str] = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("stored")

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    runs.add("a", WaitingRun(task, OpenQuestions()))
    runs.add("b", WaitingRun(failed, OpenQuestions()))
    await runs.end()
    assert (task.cancelled(), ended, runs.take("a"), runs.take("b")) == (True, ["stored"], None, None)
    assert not failed._log_traceback
    await runs.end()
