"""`CaseRun`: one run of an evaluation case by an agent, in a separate session, and the grading of its answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from perdure._config.needs_trust import tighten_limits
from perdure._core.log.store import Store
from perdure._core.model.budget import Budget
from perdure._core.run.outcome import Outcome
from perdure._core.run.spec import SHUTDOWN_REASON
from perdure._core.values.clock import Clock
from perdure._core.values.error import SessionBusy, ShuttingDown, StoreError
from perdure._core.values.event import RunEnded
from perdure._core.values.message import Message, Text
from perdure._core.values.provenance import UNTRUSTED_LABEL
from perdure._runtime.agent.agent import Agent
from perdure._runtime.session.session import Session
from perdure._work.judging.graders.grader import Evidence, Grade, Grader, grade_evidence

from .case import CaseResult, build_raised_result, build_result
from .dataset import Case
from .sessions import read_result, write_result

GRADED: Final = frozenset({"done", "stopped"})
"""Ways in which a run can end that leave an answer to grade."""
_INPUT_ID: Final = "case"

BuildDeps: TypeAlias = Callable[[Case], Any | Awaitable[Any]]
"""Function that returns the `deps` of the run of a case; plain or async."""


class CaseRun(Struct, frozen=True, kw_only=True, eq=False):
    """A run of an evaluation case by an agent: `perform` starts or resumes it, and grades the answer."""

    case: Case
    agent: Agent[Any]
    agent_name: str
    repetition: int
    session_id: str
    """Id of the session; further attempts have a number at its end."""
    store: Store
    clock: Clock
    retries_errors: bool = False
    """Run the case again in a new session if its stored result is an error."""
    is_untrusted: bool = False
    """True if others may have written the case (`Dataset.is_untrusted`)."""

    async def find_result(self) -> CaseResult | None:
        """Return the stored result; `None` if the case has to be run or graded first."""
        session = await self._find_last_attempt()
        if await session.info() is None:
            return None
        result = await read_result(session)
        return result if result is not None and self._is_usable(result) else None

    async def measure_spent(self) -> float:
        """Return the known cost of all attempts that ended, with their grades. One that was cut off counts itself."""
        spent, number = 0.0, 1
        while await (session := self._open(number)).info() is not None:
            result = await read_result(session)
            if result is not None:
                spent += (result.cost_usd or 0.0) + result.grading_cost_usd
            elif (ended := await self._find_end(session)) is not None:
                spent += ended.cost_usd or 0.0
            number += 1
        return spent

    async def perform(
        self, graders: Sequence[Grader], budget: Budget | None, build_deps: BuildDeps | None
    ) -> CaseResult:
        """Run the case, grade the answer, and store the result. A run that was cut off is continued.

        Raises `ShuttingDown` if the process was asked to end: the run is left for the next one.
        """
        session = await self._choose_session()
        try:
            outcome = await self._run_in(session, budget, build_deps)
        except (StoreError, SessionBusy, ShuttingDown):
            raise  # then nothing can be stored, or another process is at it
        except Exception as error:  # noqa: BLE001 - whatever the code of an agent raises is the result of the case
            result = build_raised_result(self._name_result(session), self.case, error)
        else:
            if outcome.status == "waiting" and outcome.reason == SHUTDOWN_REASON:
                raise ShuttingDown("the process was asked to end: resume the evaluation")
            result = build_result(self._name_result(session), self.case, outcome, await self._grade(outcome, graders))
        result = msgspec.structs.replace(result, finished_at=self.clock.now())
        await write_result(session, result)
        return result

    async def _run_in(
        self, session: "Session[Any]", budget: Budget | None, build_deps: BuildDeps | None
    ) -> Outcome[Any]:
        options: dict[str, Any] = {}
        if self.case.limits is not None:
            own = self.agent.limits
            options["limits"] = tighten_limits(self.case.limits, own) if self.is_untrusted else self.case.limits
        if budget is not None:
            options["budget"] = budget
        if build_deps is not None:
            made = build_deps(self.case)
            options["deps"] = await made if isinstance(made, Awaitable) else made
        elif self.case.deps is not None:
            options["deps"] = self.case.deps
        prompt = Message("user", (Text(self.case.prompt),), labels=(UNTRUSTED_LABEL,) if self.is_untrusted else ())
        return await session.run(prompt, output=self.case.output, input_id=_INPUT_ID, **options)

    async def _grade(self, outcome: Outcome[Any], graders: Sequence[Grader]) -> list[Grade]:
        if outcome.status not in GRADED:
            return []
        details = {"case_id": self.case.id, "agent": self.agent_name, "tags": self.case.tags, "deps": self.case.deps}
        evidence = Evidence.from_outcome(
            outcome, goal=self.case.prompt, expected=self.case.expected, round=self.repetition, details=details
        )
        return list(await asyncio.gather(*[grade_evidence(each, evidence) for each in graders]))

    # -- attempts ------------------------------------------------------------------------------------------------------

    async def _find_last_attempt(self) -> "Session[Any]":
        """Return the session of the last attempt; a new one if there is none."""
        session, number = self._open(1), 1
        while await (following := self._open(number + 1)).info() is not None:
            session, number = following, number + 1
        return session

    async def _choose_session(self) -> "Session[Any]":
        """Return the session to run in: a new attempt after a run that was cancelled, or an error to be retried."""
        session = await self._find_last_attempt()
        if await session.info() is None:
            return session
        result = await read_result(session)
        if (result is None and await self._is_cancelled(session)) or (
            result is not None and self.retries_errors and result.verdict == "error"
        ):
            _, _, number = session.session_id.removeprefix(self.session_id).rpartition("-")
            return self._open(int(number or 1) + 1)
        return session

    async def _is_cancelled(self, session: "Session[Any]") -> bool:
        """Return True if the run of an earlier process was cancelled, as by Ctrl-C: that is no result."""
        ended = await self._find_end(session)
        return ended is not None and ended.status == "cancelled"

    async def _find_end(self, session: "Session[Any]") -> RunEnded | None:
        """Return the event with which the run of an earlier process ended; `None` if it was cut off."""
        ended = [each.event for each in await self.store.read(session.session_id) if isinstance(each.event, RunEnded)]
        return ended[-1] if ended else None

    def _is_usable(self, result: CaseResult) -> bool:
        is_same = result.digest == self.case.grading_digest
        return is_same and not (self.retries_errors and result.verdict == "error")

    def _open(self, attempt: int) -> "Session[Any]":
        name = self.session_id if attempt == 1 else f"{self.session_id}-{attempt}"
        return self.agent.session(name, store=self.store)

    def _name_result(self, session: "Session[Any]") -> dict[str, Any]:
        return {
            "agent": self.agent_name,
            "repetition": self.repetition,
            "session_id": session.session_id,
            "digest": self.case.grading_digest,
        }
