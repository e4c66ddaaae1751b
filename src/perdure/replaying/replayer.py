"""Replay a log run by run: start each run as recorded, and compare what the agent does with the log."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.core.event import Entry, GrantRevoked, QuestionAsked, SessionConfigured
from perdure.core.outcome import Outcome
from perdure.core.tool import Tool
from perdure.runtime.agent import Agent
from perdure.runtime.overrides import RunOverrides, restore_overrides
from perdure.session_transfer import Recording

from .log_comparison import LogComparer, ReplayStopped
from .offline_agent import list_skill_tools, make_offline_agent
from .recorded_clock_and_store import ComparingStore
from .recorded_input_playback import Playback
from .recorded_log_index import RecordedLog
from .recorded_permissions import copy_gate_for_replay
from .recorded_tools import RecordedTools
from .run_segment import RunSegment
from .session_for_replay import ReplaySession

_UNUSED: Mapping[str, Any] = {"deps": None, "budget": None}
"""Run options that only tools and models use, which a replay does not call."""


class ReplayedRuns(Struct):
    """Counts and outcomes of the runs that a `Replayer` has replayed, up to the first difference."""

    runs: int = 0
    """Number of runs replayed, to their end or to where the replay stopped."""
    skipped: int = 0
    """Number of runs that were a direct tool call, which cannot be replayed."""
    outcomes: tuple[Outcome[Any], ...] = ()


def list_missing_options(segment: RunSegment, code: RunOverrides) -> list[str]:
    """Return the names of options, such as `tools`, that were Python objects in the recorded run and are not in `code`.

    The model, and objects that only tools use, are not needed for a replay.
    """
    needed = set(segment.started.options.get("code", ())) - {"model", *_UNUSED}
    return [name for name in needed if name not in code] if segment.begins != "call" else []


class Replayer:
    """Replayer of one recorded log, with an offline copy of the agent."""

    def __init__(
        self,
        agent: Agent[Any],
        recording: Recording,
        record: RecordedLog,
        code: RunOverrides,
        added: Sequence[Tool[..., Any]],
    ) -> None:
        self.check = LogComparer(record, recording.prefixes)
        """The comparison with the log; it has the first difference."""
        self._name = recording.session_id
        self._record = record
        self._code = code
        self._playback = Playback(self.check)
        known = {tool.name: tool for tool in (*list_skill_tools(agent), *added)}
        compacts = any("compaction" in event.changes for event in _list_configurations(recording))
        self._agent = make_offline_agent(agent, self._playback, RecordedTools(self._playback, known), compacts=compacts)

    async def replay_all(self, entries: Sequence[Entry]) -> ReplayedRuns:
        """Replay the runs of the log in order, up to the first difference, and return their outcomes."""
        driven = ReplayedRuns()
        reached = -1  # the last entry that the session has, if it has all of them
        for segment in self._record.segments:
            if segment.begins == "call":
                driven.skipped += 1
                continue
            first = segment.entries[0].seq
            if reached + 1 != first:
                await self._open_session(entries[: first - 1], max(reached, 0))
            driven.runs += segment.begins != "resume"
            outcome = await self._replay_segment(segment)
            if self.check.divergence is not None:
                break
            reached = -1 if outcome is None else segment.entries[-1].seq
            driven.outcomes += () if outcome is None else (outcome,)
        return driven

    async def _open_session(self, before: Sequence[Entry], reached: int) -> None:
        """Open a session with the recorded entries: at the start, and where entries between two runs were skipped."""
        store = ComparingStore(self.check)
        await store.load_entries(self._name, before)
        self._playback.session = ReplaySession(self._agent, self._name, store)
        for event in [entry.event for entry in before[reached:]]:
            if isinstance(event, GrantRevoked):
                for gate in self._playback.gates:
                    gate.grants.forget(event.grant_id)

    async def _replay_segment(self, segment: RunSegment) -> Outcome[Any] | None:
        """Replay one segment and return its outcome; `None` if it was cut off or differs from the log."""
        await self._playback.begin(segment)
        session, overrides = self._playback.session, self._overrides(segment)
        try:
            if segment.begins == "run" and not segment.opening:
                raise ReplayStopped("the record breaks off before the prompt")  # noqa: TRY301 - as anywhere else
            outcome = await session.begin(segment, overrides)
            while outcome is not None and outcome.status == "waiting":
                answered = not segment.is_waiting and await self._answer_questions(session, outcome.questions)
                outcome = await session.resume(**overrides) if answered else None
        except ReplayStopped:
            return None
        except ConfigError as error:  # a role, an agent or a tool that it needs is not there any more
            self.check.record_divergence(
                segment.entries[0].seq, "request", "the run cannot be begun", "a run", str(error)
            )
            return None
        finally:
            await session.aclose()
        self.check.finish()
        return outcome

    async def _answer_questions(self, session: ReplaySession, questions: Sequence[QuestionAsked]) -> bool:
        """Answer questions as recorded; return False if one has no recorded answer."""
        known = {(ask.about, _calls_of(ask)): answered for ask, answered in self._record.answers}
        for question in questions:
            answered = known.get((question.about, _calls_of(question)))
            if answered is None:
                return False
            await session.answer(question.ask_id, answered.answer)
        return True

    def _overrides(self, segment: RunSegment) -> RunOverrides:
        """Return the run options of this segment, with the model replaced by the recorded one."""
        options = segment.started.options
        own: set[str] = set(options.get("code", ()))
        given = {**_UNUSED, **self._code}.items()
        again: dict[str, Any] = {name: value for name, value in given if name in own or name in options}
        data = {name: value for name, value in options.items() if name not in {"code", "model"}}
        overrides: RunOverrides = {**restore_overrides(data, {}), **cast("RunOverrides", again)}
        if "model" in options or "model" in own:
            overrides["model"] = self._agent.model
        if "permission" in overrides:
            overrides["permission"] = copy_gate_for_replay(self._playback, overrides["permission"])
        if "budget" in overrides:
            overrides["budget"] = None
        return overrides


def _list_configurations(recording: Recording) -> list[SessionConfigured]:
    return [entry.event for entry in recording.entries if isinstance(entry.event, SessionConfigured)]


def _calls_of(question: QuestionAsked) -> tuple[str, ...]:
    return tuple([str(call["call_id"]) for call in question.calls])
