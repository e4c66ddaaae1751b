"""`Evaluation`: agents run the cases of a dataset, several at a time, and are graded; no finished case is run again."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.log.store import Store
from perdure._core.model.budget import Budget
from perdure._core.model.protocol import Model, model_info
from perdure._core.values import checks
from perdure._core.values.clock import SYSTEM_CLOCK, Clock, new_id
from perdure._core.values.error import ConfigError, ShuttingDown
from perdure._runtime.agent.agent import Agent
from perdure._stores import open_store
from perdure._work.judging.graders.grader import Grader

from .case import CaseResult
from .case_run import BuildDeps, CaseRun
from .dataset import MAX_REPEAT, Case, Dataset, GraderChoice
from .named_graders import GraderDefaults, build_grader
from .report import (
    EvaluationReport,
    PastEvaluation,
    build_reported_case,
    compare_results,
    summarize_agents,
)
from .sessions import EvaluationRecord, EvaluationStore, get_run_session_id

DEFAULT_PARALLEL: Final = 4
"""Cases that run at the same time."""
DEFAULT_NAME: Final = "agent"
"""Name of an agent that was given none: in reports it is called after its model."""
SHUTDOWN_SECONDS: Final = 12.0
"""Time that the other cases get when the process is to end: tools get ten seconds of it."""
MAX_RUNS: Final = 100_000
"""The most runs of an evaluation: cases, times their repetitions, times agents."""
MAX_HISTORY: Final = 20
"""Earlier evaluations that a report has."""


class EvaluationProgress(Struct, frozen=True, kw_only=True):
    """Progress of an evaluation: the number of results, and the newest one."""

    done: int
    total: int
    passed: int
    cost_usd: float
    """Known cost of the runs and graders so far."""
    result: CaseResult
    is_reused: bool = False
    """True if the result is that of an earlier process."""


class Evaluation:
    """An evaluation: a dataset, the agents that run its cases, and graders. It can be resumed: results are stored."""

    def __init__(
        self,
        dataset: Dataset,
        agents: "Agent[Any] | Sequence[Agent[Any]] | Mapping[str, Agent[Any]]",
        *,
        graders: Sequence[GraderChoice] = (),
        store: str | Store = "memory:",
        evaluation_id: str = "",
        parallel: int = DEFAULT_PARALLEL,
        repeat: int = 1,
        max_cost_usd: float | None = None,
        build_deps: BuildDeps | None = None,
        grader_model: "str | Model | None" = None,
        retry_errors: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Describe an evaluation; nothing is run yet.

        Args:
            dataset: The cases.
            agents: The agents, each of which runs every case; a mapping gives them the names in the report.
            graders: Graders of every case, in addition to its own.
            store: Where the sessions of the runs, and the results, are stored.
            evaluation_id: The id of an evaluation in the store that is to be resumed; by default a new one begins.
            parallel: The most cases that run at the same time.
            repeat: How often each case is run, if it does not say so itself.
            max_cost_usd: The most that all runs, and `model` graders by name, may cost; then cases end as `limit`.
            build_deps: A function that gets a case and returns the `deps` of its run.
            grader_model: The model of `model` graders that name none.
            retry_errors: Run cases again whose stored result is an error.
            clock: The clock of the report; each agent has its own.
        """
        checks.require_int("Evaluation", "parallel", parallel, 1)
        checks.require_int("Evaluation", "repeat", repeat, 1)
        if repeat > MAX_REPEAT:
            checks.raise_config_error("Evaluation", "repeat", repeat, f"use at most {MAX_REPEAT}")
        checks.require_text("Evaluation", "evaluation_id", evaluation_id)
        if max_cost_usd is not None:
            checks.require_number("Evaluation", "max_cost_usd", max_cost_usd)
        checks.require_callable_or_none("Evaluation", "build_deps", build_deps)
        if not isinstance(dataset, Dataset):
            checks.raise_config_error("Evaluation", "dataset", dataset, "give a Dataset, or load_dataset(path)")
        self.evaluation_id = evaluation_id or new_id()
        """The id of the evaluation, with which it is resumed."""
        self.dataset = replace(dataset, cases=[_add_graders(case, graders) for case in dataset.cases])
        self.agents = name_agents(agents)
        """The agents by their names in the report."""
        self._owns_store = isinstance(store, str)
        self._stored = EvaluationStore(open_store(store))
        self._parallel = parallel
        self._repeat = repeat
        self._max_cost_usd = max_cost_usd
        self._build_deps = build_deps
        self._grader_model = grader_model
        self._retry_errors = retry_errors
        self._clock = clock
        self._check_size()
        self._build_graders(None)  # so that a wrong grader is noticed before anything is run

    async def run(
        self,
        on_progress: Callable[[EvaluationProgress], None] | None = None,
        *,
        baseline: EvaluationReport | str | None = "last",
    ) -> EvaluationReport:
        """Run every case that has no result yet, and return the report.

        A case that raises, times out or exhausts a budget is a result. Raises `ShuttingDown` if the process was asked
        to end by a `Shutdown`: what is finished is stored.

        Args:
            on_progress: A function that is called with each result.
            baseline: What to compare with: `"last"` is the last finished evaluation in the store, if there is one, of
                the whole dataset with one of these agents; else the id of an evaluation, a report, or `None`.
        """
        try:
            record = await self._read_record()
            before = await self._find_baseline(baseline, record)
            await self._begin(record)
            async with AsyncExitStack() as opened:
                for agent in self.agents.values():
                    await opened.enter_async_context(agent)
                progress = _Progress(on_progress, list(self._list_runs()))
                await progress.collect_stored()
                await self._perform_missing(progress)
            return await self._finish(record, progress, before)
        finally:
            if self._owns_store:
                await self._stored.store.aclose()

    # -- the grid ------------------------------------------------------------------------------------------------------

    def _check_size(self) -> None:
        """Raise `ConfigError` for more runs than an evaluation can have: they are listed before the first begins."""
        count = len(self.agents) * sum([max(case.repeat, self._repeat) for case in self.dataset.cases])
        if count > MAX_RUNS:
            raise ConfigError(
                f"{self.dataset.path or self.dataset.name!r} has {len(self.dataset.cases):,} cases, which with repeat "
                f"and {len(self.agents)} agents are {count:,} runs, and {MAX_RUNS:,} are the most: lower repeat, or "
                "select cases"
            )

    def _list_runs(self) -> Iterator[CaseRun]:
        for case in self.dataset.cases:
            for name, agent in self.agents.items():
                for repetition in range(1, max(case.repeat, self._repeat) + 1):
                    yield CaseRun(
                        case=case,
                        agent=agent,
                        agent_name=name,
                        repetition=repetition,
                        session_id=get_run_session_id(self.evaluation_id, case.run_digest, case.id, name, repetition),
                        store=self._stored.store,
                        clock=self._clock,
                        retries_errors=self._retry_errors,
                        is_untrusted=self.dataset.is_untrusted,
                    )

    def _build_graders(self, budget: Budget | None) -> dict[str, list[Grader]]:
        """Return the graders of each case, by its id."""
        context = GraderDefaults(self._grader_model, budget)
        found: dict[str, list[Grader]] = {}
        built: dict[int, Grader] = {}  # many cases may share one choice
        for case in self.dataset.cases:
            if not case.graders:
                raise ConfigError(f'case {case.id!r} has no graders: add graders = ["contains"] to it, or --grader')
            for each in case.graders:
                if id(each) not in built:
                    built[id(each)] = build_grader(each, context)
            found[case.id] = [built[id(each)] for each in case.graders]
        return found

    async def _perform_missing(self, progress: "_Progress") -> None:
        """Run what has no result yet, with as many tasks as cases may run at the same time."""
        budget = None
        if self._max_cost_usd is not None:
            budget = Budget(max_cost_usd=max(self._max_cost_usd - await progress.measure_spent(), 0.0))
        graders, waiting = self._build_graders(budget), iter(progress.list_missing())

        async def work() -> None:
            for place, run in waiting:
                progress.add(place, await run.perform(graders[run.case.id], budget, self._build_deps))

        tasks = [asyncio.ensure_future(work()) for _ in range(self._parallel)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if any(each.done() and isinstance(each.exception(), ShuttingDown) for each in tasks):
                await asyncio.wait(tasks, timeout=SHUTDOWN_SECONDS)  # other runs are being left for the next process
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [each for each in ended if isinstance(each, Exception)]
        for error in [each for each in errors if not isinstance(each, ShuttingDown)] or errors:
            raise error

    # -- what is stored ------------------------------------------------------------------------------------------------

    async def _find_baseline(
        self, given: EvaluationReport | str | None, own: EvaluationRecord
    ) -> EvaluationRecord | None:
        if given is None:
            return None
        if isinstance(given, EvaluationReport):
            return EvaluationRecord(
                evaluation_id=given.evaluation_id,
                dataset=given.dataset,
                agents=tuple([each.agent for each in given.summaries]),
                started_at=given.started_at,
                finished_at=given.finished_at,
                results=given.results,
            )
        if given == "last":
            earlier = await self._list_earlier(own)
            return next((each for each in earlier if not self.agents.keys().isdisjoint(each.agents)), None)
        record = await self._stored.read(given)
        if record is None or not record.is_finished:
            raise ConfigError(
                f"there is no finished evaluation {given!r} in the store to compare with: give 'last', or None"
            )
        return record

    async def _list_earlier(self, own: EvaluationRecord) -> list[EvaluationRecord]:
        """Return the finished evaluations of the whole dataset that began before this one, the newest first."""
        found = await self._stored.list_evaluations(self.dataset.name, finished=True, limit=MAX_HISTORY + 1)
        others = [each for each in found if each.evaluation_id != own.evaluation_id and not each.is_selection]
        return [each for each in others if each.started_at <= own.started_at][:MAX_HISTORY]

    async def _read_record(self) -> EvaluationRecord:
        """Return the record of the evaluation that is resumed, or that of a new one, which is not stored yet."""
        record = await self._stored.read(self.evaluation_id)
        if record is not None and record.dataset != self.dataset.name:
            raise ConfigError(
                f"evaluation {self.evaluation_id!r} is one of the dataset {record.dataset!r}, and not of "
                f"{self.dataset.name!r}: resume it with that, or begin a new one"
            )
        if record is None:
            record = EvaluationRecord(
                evaluation_id=self.evaluation_id,
                dataset=self.dataset.name,
                agents=tuple(self.agents),
                started_at=self._clock.now(),
                is_selection=self.dataset.is_selection,
            )
        return record

    async def _begin(self, record: EvaluationRecord) -> None:
        """Store the record of a new evaluation, so that it can be resumed."""
        if await self._stored.read(self.evaluation_id) is None:
            await self._stored.write(record)

    async def _finish(
        self, record: EvaluationRecord, progress: "_Progress", before: EvaluationRecord | None
    ) -> EvaluationReport:
        results = progress.list_results()
        finished_at = self._clock.now()
        report = EvaluationReport(
            evaluation_id=self.evaluation_id,
            dataset=self.dataset.name,
            started_at=record.started_at,
            finished_at=finished_at,
            cases=tuple([build_reported_case(case) for case in self.dataset.cases]),
            results=results,
            summaries=summarize_agents(results),
            reused=progress.reused,
            comparison=None
            if before is None
            else compare_results(results, before.evaluation_id, before.started_at, before.results),
            history=tuple([_to_past(each) for each in reversed(await self._list_earlier(record))]),
        )
        kept = tuple([each.without_texts() for each in results])
        changed = replace(record, agents=tuple(self.agents), is_selection=self.dataset.is_selection)
        await self._stored.write(replace(changed, finished_at=finished_at, results=kept))
        return report


class _Progress:
    """The results so far, in the order of the runs."""

    def __init__(self, report: Callable[[EvaluationProgress], None] | None, runs: list[CaseRun]) -> None:
        self._report = report
        self._runs = runs
        self._results: dict[int, CaseResult] = {}
        self.reused = 0

    @property
    def cost_usd(self) -> float:
        return sum([(each.cost_usd or 0.0) + each.grading_cost_usd for each in self._results.values()])

    async def collect_stored(self) -> None:
        """Read the results of an earlier process."""
        for place, run in enumerate(self._runs):
            result = await run.find_result()
            if result is not None:
                self.reused += 1
                self.add(place, result, is_reused=True)

    async def measure_spent(self) -> float:
        """Return what all attempts of earlier processes cost, also those whose results do not count any more."""
        return sum([await run.measure_spent() for run in self._runs])

    def list_missing(self) -> list[tuple[int, CaseRun]]:
        return [(place, run) for place, run in enumerate(self._runs) if place not in self._results]

    def list_results(self) -> tuple[CaseResult, ...]:
        return tuple([self._results[place] for place in range(len(self._runs))])

    def add(self, place: int, result: CaseResult, *, is_reused: bool = False) -> None:
        self._results[place] = result
        if self._report is not None:
            self._report(
                EvaluationProgress(
                    done=len(self._results),
                    total=len(self._runs),
                    passed=len([each for each in self._results.values() if each.passed]),
                    cost_usd=self.cost_usd,
                    result=result,
                    is_reused=is_reused,
                )
            )


def name_agents(agents: Any) -> dict[str, Agent[Any]]:
    """Return agents by unique names: their own, or those of their models. Raises `ConfigError` for other objects."""
    by_name: dict[Any, Any] | None = dict(agents) if _is_mapping(agents) else None
    listed: list[Any] = [*agents] if _is_list(agents) else [agents] if by_name is None else [*by_name.values()]
    if not listed or not all(isinstance(each, Agent) for each in listed):
        checks.raise_config_error("Evaluation", "agents", agents, "give an agent, or a list of agents")
    if by_name is not None:
        return by_name
    named: dict[str, Agent[Any]] = {}
    for agent in listed:
        stem = agent.name if agent.name != DEFAULT_NAME else model_info(agent.model).name
        number, name = 1, stem
        while name in named:
            number, name = number + 1, f"{stem} #{number + 1}"
        named[name] = agent
    return named


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _add_graders(case: Case, graders: Sequence[GraderChoice]) -> Case:
    return replace(case, graders=[*case.graders, *graders])


def _to_past(record: EvaluationRecord) -> PastEvaluation:
    summaries = summarize_agents(record.results)
    return PastEvaluation(evaluation_id=record.evaluation_id, started_at=record.started_at, summaries=summaries)
