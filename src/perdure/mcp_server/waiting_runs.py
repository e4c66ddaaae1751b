"""Runs of MCP clients that are paused in a tool call until a person answers; the client fetches the result later.

A tool that asks before it begins lets its run wait in the log, and the run ends for now. One that asks later can only
go on in this process: the run continues here, and the client fetches its result later.
"""

import asyncio
from typing import Any, Final

from perdure.core.error import UsageError
from perdure.core.event import Entry, QuestionAnswered, QuestionAsked

ANSWER_SECONDS: Final = 30.0
"""How long a call is kept open for the answer to a question; clients give up after a minute or so."""
_STOP_SECONDS: Final = 10.0


class OpenQuestions:
    """Questions to people, asked in one run, that have no answer yet."""

    def __init__(self) -> None:
        self._by_id: dict[str, QuestionAsked] = {}
        self.changed = asyncio.Event()
        """Set at each question and answer."""

    @property
    def open(self) -> list[QuestionAsked]:
        """The questions without an answer."""
        return list(self._by_id.values())

    def note_event(self, entry: Entry) -> None:
        """Record the questions and answers among the run's events."""
        if isinstance(entry.event, QuestionAsked):
            self._by_id[entry.event.ask_id] = entry.event
        elif isinstance(entry.event, QuestionAnswered):
            self._by_id.pop(entry.event.ask_id, None)
        else:
            return
        self.changed.set()


class WaitingRun:
    """Run that an MCP client started and that is still in progress, with its unanswered questions to people."""

    def __init__(self, run: "asyncio.Future[Any]", questions: OpenQuestions) -> None:
        self.run = run
        self.questions = questions

    def is_outdated(self, *, has_task: bool) -> bool:
        """Return True if the run has ended and its result is not needed, such as when the client has another task."""
        if not self.run.done():
            return False
        if self.run.cancelled() or self.run.exception() is not None:
            return has_task or self.run.cancelled()
        return has_task or getattr(self.run.result(), "status", "") == "waiting"

    async def wait(self, others: "WaitingRuns") -> bool:
        """Wait until the run has ended; return False if a question of it had no answer for `ANSWER_SECONDS`.

        The run is cancelled with the caller. If too many `others` wait already, the run is cancelled, too.
        """
        try:
            while not self.run.done():
                self.questions.changed.clear()
                seconds = ANSWER_SECONDS if self.questions.open else None
                change = asyncio.ensure_future(self.questions.changed.wait())
                try:
                    done, _ = await asyncio.wait(
                        {self.run, change}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    change.cancel()
                if not done:
                    others.check_room()
                    return False
        except BaseException:
            self.run.cancel()
            await asyncio.wait({self.run}, timeout=_STOP_SECONDS)
            raise
        return True


class WaitingRuns:
    """Runs of one MCP client that are paused until a person answers, by session id."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._runs: dict[str, WaitingRun] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, session_id: str, run: WaitingRun) -> None:
        """Keep a run until its client asks for its result."""
        self._loop = asyncio.get_running_loop()
        self._runs[session_id] = run

    def take(self, session_id: str) -> WaitingRun | None:
        """Return the waiting run of a session, which the caller waits for from now on; `None` if there is none."""
        return self._runs.pop(session_id, None)

    def check_room(self) -> None:
        """Raise `UsageError` if so many runs wait that there is no room for another."""
        if len(self._runs) >= self._most:
            raise UsageError(f"{self._most} conversations of this client wait for a person: this one was cancelled")

    def cancel(self) -> None:
        """Cancel all runs; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            for each in list(self._runs.values()):
                self._loop.call_soon_threadsafe(each.run.cancel)

    async def end(self) -> None:
        """Cancel all runs, and wait until that is stored."""
        runs = [each.run for each in self._runs.values()]
        self._runs.clear()
        for each in runs:
            each.cancel()
        if runs:
            await asyncio.wait(runs, timeout=_STOP_SECONDS)
            for each in runs:
                if each.done() and not each.cancelled():
                    each.exception()  # read, so that asyncio does not log it
