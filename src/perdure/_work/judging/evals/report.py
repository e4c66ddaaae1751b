"""`EvaluationReport`: the results of an evaluation, summarized by agent and tag, and compared with an earlier one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from perdure._core.values.error import ConfigError

from .case import CaseResult
from .dataset import Case


class ReportedCaseDefinition(Struct, frozen=True, kw_only=True):
    """A case as an evaluation report shows it: id, prompt, expected answer and tags."""

    id: str
    prompt: str
    expected: Any = None
    tags: tuple[str, ...] = ()


class AgentSummary(Struct, frozen=True, kw_only=True):
    """Summary of all results of one agent in an evaluation: how many passed, the mean score, cost and latency."""

    agent: str
    runs: int = 0
    passed: int = 0
    failed: int = 0
    errors: int = 0
    pass_rate: float = 0.0
    """Fraction of the runs that passed, from 0 to 1."""
    mean_score: float = 0.0
    cost_usd: float | None = None
    """Cost of the runs whose cost is known; `None` if that of none is."""
    unknown_costs: int = 0
    """Runs whose cost is not known."""
    grading_cost_usd: float = 0.0
    latency_median_seconds: float = 0.0
    latency_p95_seconds: float = 0.0
    """Latency that 95 % of the runs did not exceed."""
    input_tokens: int = 0
    output_tokens: int = 0


class CaseChange(Struct, frozen=True, kw_only=True):
    """A case whose results differ from those of an earlier evaluation, for one agent."""

    case_id: str
    agent: str
    pass_rate_before: float
    pass_rate: float
    score_before: float
    score: float


class Comparison(Struct, frozen=True, kw_only=True):
    """An evaluation compared with an earlier one of the same dataset."""

    baseline_id: str
    """The evaluation that it is compared with."""
    baseline_at: float
    """When that one began, in seconds since 1970."""
    regressions: tuple[CaseChange, ...] = ()
    """Cases that pass less often than before."""
    improvements: tuple[CaseChange, ...] = ()
    """Cases that pass more often than before."""
    compared: int = 0
    """Pairs of case and agent that both evaluations have, unchanged."""
    summaries: tuple[AgentSummary, ...] = ()
    """The summaries of the earlier evaluation, of agents that this one has too."""


class PastEvaluation(Struct, frozen=True, kw_only=True):
    """Summary of an earlier, finished evaluation of the same dataset, for the history in a report."""

    evaluation_id: str
    started_at: float
    summaries: tuple[AgentSummary, ...] = ()


class EvaluationReport(Struct, frozen=True, kw_only=True):
    """The results of an evaluation: each case by each agent, and the comparison with an earlier evaluation."""

    evaluation_id: str
    dataset: str
    started_at: float
    """When it began, in seconds since 1970; that of the first process if it was resumed."""
    finished_at: float
    cases: tuple[ReportedCaseDefinition, ...]
    results: tuple[CaseResult, ...]
    """One result for each case, agent and repetition, in this order."""
    summaries: tuple[AgentSummary, ...]
    """A summary for each agent."""
    reused: int = 0
    """Results of an earlier process, which were not run again."""
    comparison: Comparison | None = None
    history: tuple[PastEvaluation, ...] = ()
    """Earlier evaluations of the dataset, the oldest first."""

    @property
    def all_passed(self) -> bool:
        """True if every run passed."""
        return all(each.passed for each in self.results)

    @property
    def pass_rate(self) -> float:
        """Fraction of all runs that passed, from 0 to 1."""
        return _mean([float(each.passed) for each in self.results])

    @property
    def regressions(self) -> tuple[CaseChange, ...]:
        """Cases that pass less often than in the earlier evaluation; none if there is none."""
        return () if self.comparison is None else self.comparison.regressions

    def summarize_tags(self) -> dict[str, dict[str, float]]:
        """Return the pass rate of each agent by tag, in the order of the cases."""
        tags = {case.id: case.tags for case in self.cases}
        found: dict[str, dict[str, list[float]]] = {}
        for result in self.results:
            for tag in tags[result.case_id]:
                found.setdefault(tag, {}).setdefault(result.agent, []).append(float(result.passed))
        return {tag: {agent: _mean(each) for agent, each in agents.items()} for tag, agents in found.items()}

    def to_json(self) -> bytes:
        """Return the report as JSON, which `read_report` reads again."""
        return msgspec.json.encode(self)


def read_report(data: bytes | str) -> EvaluationReport:
    """Read an evaluation report from JSON text. Raises `ConfigError` if it is not a report."""
    try:
        return msgspec.json.decode(data, type=EvaluationReport)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"this is no report of an evaluation ({error}): give what perdure eval --json prints"
        ) from error


def build_reported_case(case: Case) -> ReportedCaseDefinition:
    """Return the part of a case that an evaluation report shows: id, prompt, expected answer and tags."""
    from perdure._core.values.jsonable import to_jsonable

    return ReportedCaseDefinition(
        id=case.id, prompt=case.prompt, expected=to_jsonable(case.expected), tags=tuple(case.tags)
    )


def summarize_agents(results: Iterable[CaseResult]) -> tuple[AgentSummary, ...]:
    """Return a summary of the results of each agent, in the order in which the agents first occur."""
    by_agent: dict[str, list[CaseResult]] = {}
    for result in results:
        by_agent.setdefault(result.agent, []).append(result)
    return tuple([_summarize(agent, each) for agent, each in by_agent.items()])


def _summarize(agent: str, results: Sequence[CaseResult]) -> AgentSummary:
    costs = [each.cost_usd for each in results if each.cost_usd is not None]
    latencies = sorted([each.latency_seconds for each in results])
    passed = len([each for each in results if each.passed])
    return AgentSummary(
        agent=agent,
        runs=len(results),
        passed=passed,
        failed=len([each for each in results if each.verdict == "failed"]),
        errors=len([each for each in results if each.verdict == "error"]),
        pass_rate=passed / len(results),
        mean_score=_mean([each.score for each in results]),
        cost_usd=sum(costs) if costs else None,
        unknown_costs=len(results) - len(costs),
        grading_cost_usd=sum([each.grading_cost_usd for each in results]),
        latency_median_seconds=find_quantile(latencies, 0.5),
        latency_p95_seconds=find_quantile(latencies, 0.95),
        input_tokens=sum([each.input_tokens for each in results]),
        output_tokens=sum([each.output_tokens for each in results]),
    )


def find_quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return the quantile of sorted values at a fraction from 0 to 1: 0.5 for the median; 0 if there are no values."""
    if not ordered:
        return 0.0
    place = -int(-fraction * len(ordered) // 1) - 1  # rounded up: with two values, the median is the first
    return ordered[min(max(place, 0), len(ordered) - 1)]


def compare_results(
    results: Iterable[CaseResult], baseline_id: str, baseline_at: float, before: Sequence[CaseResult]
) -> Comparison:
    """Compare results with those of an earlier evaluation; cases whose definition has changed since are left out."""
    now, then = _group_results(results), _group_results(before)
    changes = [_compare_case(key, then[key], each) for key, each in now.items() if key in then]
    agents = {agent for _, agent, _ in now}
    return Comparison(
        baseline_id=baseline_id,
        baseline_at=baseline_at,
        regressions=tuple([each for each in changes if each.pass_rate < each.pass_rate_before]),
        improvements=tuple([each for each in changes if each.pass_rate > each.pass_rate_before]),
        compared=len(changes),
        summaries=tuple([each for each in summarize_agents(before) if each.agent in agents]),
    )


_Key = tuple[str, str, str]


def _group_results(results: Iterable[CaseResult]) -> Mapping[_Key, list[CaseResult]]:
    grouped: dict[_Key, list[CaseResult]] = {}
    for each in results:
        grouped.setdefault((each.case_id, each.agent, each.digest), []).append(each)
    return grouped


def _compare_case(key: _Key, before: Sequence[CaseResult], now: Sequence[CaseResult]) -> CaseChange:
    return CaseChange(
        case_id=key[0],
        agent=key[1],
        pass_rate_before=_mean([float(each.passed) for each in before]),
        pass_rate=_mean([float(each.passed) for each in now]),
        score_before=_mean([each.score for each in before]),
        score=_mean([each.score for each in now]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
