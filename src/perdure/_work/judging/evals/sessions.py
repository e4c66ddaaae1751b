"""Store evaluations as sessions: one with the record of each evaluation, and one for each run of a case."""

import hashlib
from typing import Any, Final

import msgspec
from msgspec import Struct

from perdure._core.log.reserved_ids import EVALUATION_PREFIX, RuntimeSessionId
from perdure._core.log.store import Store
from perdure._core.values.jsonable import convert
from perdure._runtime.agent.agent import Agent
from perdure._runtime.session.session import Session

from .case import CaseResult

RECORD_PREFIX: Final = EVALUATION_PREFIX
"""Prefix of the sessions with the records of evaluations."""
RUN_PREFIX: Final = "eval-"
"""Prefix of the sessions of runs."""
MAX_SEARCHED: Final = 200
"""Evaluations of other datasets, at most, that are read in search of one."""
_RECORD: Final = "evaluation"
_RESULT: Final = "evaluation_result"
_PAGE: Final = 50


class EvaluationRecord(Struct, frozen=True, kw_only=True):
    """The stored record of an evaluation: what was evaluated, and its results when it is finished."""

    evaluation_id: str
    dataset: str
    agents: tuple[str, ...]
    started_at: float
    finished_at: float = 0.0
    """0 while it is not finished."""
    is_selection: bool = False
    """True if cases of the dataset were left out."""
    results: tuple[CaseResult, ...] = ()
    """The results without texts, once it is finished."""

    @property
    def is_finished(self) -> bool:
        """True if every case has a result."""
        return self.finished_at > 0


class EvaluationStore:
    """Reads and writes the records of evaluations, as sessions of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._agent: Agent[Any] = Agent("demo", store=store)  # which is not asked: values are kept without a model

    async def read(self, evaluation_id: str) -> EvaluationRecord | None:
        """Return the record of an evaluation; `None` if there is none."""
        if await self.store.info(f"{RECORD_PREFIX}{evaluation_id}") is None:
            return None
        record: EvaluationRecord | None = _convert(await self._session(evaluation_id).kept(_RECORD), EvaluationRecord)
        return record

    async def write(self, record: EvaluationRecord) -> None:
        """Store the record of an evaluation, in place of an older one."""
        session = self._session(record.evaluation_id)
        is_new = await self.store.info(session.session_id) is None
        await session.keep(_RECORD, msgspec.to_builtins(record))
        if is_new:
            await session.rename(f"evaluation of {record.dataset}")

    async def list_evaluations(self, dataset: str, *, finished: bool, limit: int = 1) -> list[EvaluationRecord]:
        """Return the last evaluations of a dataset that are finished, or that are not; the newest first."""
        found: list[EvaluationRecord] = []
        for offset in range(0, MAX_SEARCHED, _PAGE):
            listed = await self.store.list(prefix=RECORD_PREFIX, limit=_PAGE, offset=offset)
            for info in listed:
                record = await self.read(info.session_id.removeprefix(RECORD_PREFIX))
                if record is not None and record.dataset == dataset and record.is_finished == finished:
                    found.append(record)
            if len(found) >= limit or len(listed) < _PAGE:
                break
        return sorted(found, key=lambda each: each.started_at, reverse=True)[:limit]

    def _session(self, evaluation_id: str) -> "Session[Any]":
        return self._agent.session(RuntimeSessionId(f"{RECORD_PREFIX}{evaluation_id}"))


def get_run_session_id(evaluation_id: str, case_digest: str, case_id: str, agent: str, repetition: int) -> str:
    """Return the id of the session for one run of a case; a case that was changed gets a different one."""
    named = msgspec.json.encode([case_id, case_digest, agent, repetition])
    return f"{RUN_PREFIX}{evaluation_id}-{hashlib.sha256(named).hexdigest()[:12]}"


async def read_result(session: "Session[Any]") -> CaseResult | None:
    """Return the case result that is stored in the session of its run; `None` if there is none yet."""
    result: CaseResult | None = _convert(await session.kept(_RESULT), CaseResult)
    return result


async def write_result(session: "Session[Any]", result: CaseResult) -> None:
    """Store the result of a case in the session of its run."""
    await session.keep(_RESULT, msgspec.to_builtins(result))


def _convert(value: Any, kind: Any) -> Any:
    """Return a stored value as what it is; `None` if it is none, as after a change of its fields."""
    try:
        return convert(value, kind)
    except msgspec.ValidationError:
        return None
