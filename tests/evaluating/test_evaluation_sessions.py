"""Records of evaluations in a store: which of them are found, and in which order."""

import pytest

from perdure import Agent
from perdure._work.judging.evals import sessions
from perdure._work.judging.evals.sessions import (
    EvaluationRecord,
    EvaluationStore,
    get_run_session_id,
    read_result,
    write_result,
)
from perdure.evals import CaseResult
from perdure.stores import MemoryStore, SessionInfo


def record(number: int, **fields) -> EvaluationRecord:
    defaults = {"dataset": "quiz", "agents": ("one",), "started_at": 100.0 + number, "finished_at": 200.0 + number}
    return EvaluationRecord(**{"evaluation_id": f"e{number}", **defaults, **fields})


async def stored(*records: EvaluationRecord) -> EvaluationStore:
    store = EvaluationStore(MemoryStore())
    for each in records:
        await store.write(each)
    return store


async def test_a_record_is_read_as_it_was_last_written_and_its_session_has_a_title():
    open_record = record(1, finished_at=0.0)
    store = await stored(open_record)
    assert (await store.read("e1"), open_record.is_finished) == (open_record, False)
    await store.write(record(1, is_selection=True))
    assert await store.read("e1") == record(1, is_selection=True)
    assert await store.read("e2") is None
    [info] = await store.store.list()
    assert (info.session_id, info.title) == ("evaluation-e1", "evaluation of quiz")


async def test_the_last_evaluations_of_a_dataset_are_listed_the_newest_first(monkeypatch):
    monkeypatch.setattr(sessions, "_PAGE", 2)
    other = record(9, dataset="other")
    begun = record(4, finished_at=0.0)
    store = await stored(record(2), record(3), record(1), begun, other)
    listed = [each.evaluation_id for each in await store.list_evaluations("quiz", finished=True, limit=9)]
    assert listed == ["e3", "e2", "e1"]
    assert await store.list_evaluations("quiz", finished=False, limit=9) == [begun]
    assert await store.list_evaluations("other", finished=True) == [other]
    assert await store.list_evaluations("none", finished=True) == []
    assert len(await store.list_evaluations("quiz", finished=True)) == 1
    assert len(await store.list_evaluations("quiz", finished=True, limit=2)) == 2


async def test_no_more_evaluations_of_other_datasets_are_read_than_allowed(monkeypatch):
    monkeypatch.setattr(sessions, "_PAGE", 2)
    monkeypatch.setattr(sessions, "MAX_SEARCHED", 4)
    store = await stored(record(1), *[record(number, dataset="other") for number in range(2, 6)])
    assert await store.list_evaluations("quiz", finished=True) == []
    assert [each.evaluation_id for each in await store.list_evaluations("other", finished=True, limit=9)] == [
        "e5",
        "e4",
        "e3",
        "e2",
    ]


@pytest.mark.parametrize("other", [("e2", "d", "c", "a", 1), ("e", "x", "c", "a", 1), ("e", "d", "c", "a", 2)])
def test_each_run_of_a_case_has_a_session_of_its_own_with_the_same_name_in_every_process(other):
    assert get_run_session_id("e", "d", "c", "a", 1) == get_run_session_id("e", "d", "c", "a", 1)
    assert get_run_session_id("e", "d", "c", "a", 1) != get_run_session_id(*other)
    assert get_run_session_id("e", "d", "c", "a", 1).startswith("eval-e-")
    assert len(get_run_session_id("e", "d", "c", "a", 1)) == len("eval-e-") + 12


async def test_a_title_is_given_once_and_one_that_somebody_has_given_stays():
    store = await stored(record(1, finished_at=0.0))
    assert [info.title for info in await store.store.list()] == ["evaluation of quiz"]
    await store._session("e1").rename("mine")
    await store.write(record(1))
    assert [info.title for info in await store.store.list()] == ["mine"]


class Counting(MemoryStore):
    """A store that counts the pages that are read of its list."""

    pages = 0

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        self.pages += 1
        return await super().list(prefix=prefix, limit=limit, offset=offset)


@pytest.mark.parametrize(("limit", "pages"), [(1, 1), (2, 1), (3, 2), (9, 3)])
async def test_no_more_pages_are_read_than_are_needed(monkeypatch, limit, pages):
    monkeypatch.setattr(sessions, "_PAGE", 2)
    kept = Counting()
    store = EvaluationStore(kept)
    for number in range(1, 6):
        await store.write(record(number))
    assert len(await store.list_evaluations("quiz", finished=True, limit=limit)) == min(limit, 5)
    assert kept.pages == pages


def test_an_evaluation_is_finished_when_it_has_a_time_at_which_it_was():
    begun = EvaluationRecord(evaluation_id="e", dataset="d", agents=("a",), started_at=1.0)
    assert (begun.finished_at, begun.is_finished, begun.is_selection, begun.results) == (0.0, False, False, ())
    assert record(1, finished_at=0.5).is_finished


async def test_the_result_of_a_case_is_kept_in_its_session_and_what_is_no_result_is_none():
    session = Agent("demo", store=MemoryStore()).session("s")
    assert await read_result(session) is None
    result = CaseResult(case_id="c", agent="a", verdict="passed", score=0.5)
    await write_result(session, result)
    assert await read_result(session) == result
    await session.keep("evaluation_result", {"case_id": 3})
    assert await read_result(session) is None
