"""Replay a stored session offline, run by run, and compare it with its log."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.log.reserved_ids import check_not_reserved
from perdure._core.log.store import Store
from perdure._core.run.outcome import Outcome
from perdure._core.tools.tool import Tool
from perdure._core.values import checks
from perdure._core.values.clock import new_id
from perdure._core.values.error import ConfigError, SessionNotFound, UsageError
from perdure._core.values.event import Entry, GrantRevoked, ModelRequested, SessionConfigured
from perdure._core.values.event_class import QuestionAsked
from perdure._core.values.message import Content, Message
from perdure._runtime.agent.agent import Agent
from perdure._runtime.agent.overrides import RunOverrides, restore_overrides
from perdure._runtime.transfer import PromptPrefix, Recording, read_document
from perdure._stores import open_store

from .agent import list_skill_tools, make_offline_agent
from .clock import ComparingStore
from .comparison import LogComparer, ReplayStopped
from .differences import DifferenceKind, Divergence
from .log import RecordedLog, RunSegment, index_recorded_log
from .playback import Playback
from .recorded import RecordedTools, copy_gate_for_replay
from .session import ReplaySession

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


__all__ = ["DifferenceKind", "Divergence", "ReplayReport", "Source", "replay"]

Source: TypeAlias = str | Sequence[Entry] | Mapping[str, Any] | Recording
"""A session to replay: its id, its entries, or a document from `export_session`."""


class ReplayReport(Struct, frozen=True):
    """Result of `replay`: the number of runs that were replayed, and the first difference from the log, if any."""

    session_id: str
    runs: int
    """Number of runs replayed, to their end or to where the replay stopped."""
    turns: int
    """Number of model requests that were as recorded."""
    divergence: Divergence | None = None
    """First difference from the log; `None` if there is none."""
    outcomes: tuple[Outcome[Any], ...] = ()
    """Outcomes of the replayed runs; runs cut off by a crash have none."""
    skipped: int = 0
    """Number of runs that were a direct tool call: the log does not keep its arguments."""
    prefixes: Mapping[str, PromptPrefix] = {}
    """Instructions and tools by the hash in the requests, for `export_session`."""
    branch: Outcome[Any] | None = None
    """Outcome of the live run that continued in a fork, if one was requested; its `session_id` names the fork."""

    @property
    def agrees(self) -> bool:
        """True if the agent did everything as recorded."""
        return self.divergence is None


async def replay(
    agent: Agent[Any],
    source: Source,
    *,
    store: Store | str | None = None,
    from_seq: int | None = None,
    prompt: Content | Message | None = None,
    fork_id: str | None = None,
    added: Sequence[Tool[..., Any]] = (),
    **code: Unpack[RunOverrides],
) -> ReplayReport:
    """Run a recorded session again, offline, and report the first difference from its log.

    Args:
        agent: The agent to run, as it is today. Its model and tools are not called, its store is not written.
        source: A session id, its entries, or a document from `export_session`.
        store: The store of the session; by default the agent's.
        from_seq: Replay up to this entry, then continue live in a fork of the session, with the real model and tools. A
            run that is cut there is resumed.
        prompt: A prompt for that fork, instead of resuming.
        fork_id: Id of the fork; a new one by default.
        added: Tools that other tools added during a run.
        code: Options of recorded runs that no log can keep: `tools`, `permission`, `engine`, `deps`. For the live run,
            any of the overrides.

    Raises `SessionNotFound`, `UsageError` when there is nothing to replay or code is missing, and `StoreError` when the
    log is damaged.
    """
    kept = agent.store if store is None else open_store(store)
    recording = await _load_recording(kept, source)
    entries = recording.entries
    if from_seq is not None:
        _check_from_seq(source, from_seq, entries)
        entries = entries[:from_seq]
    record = index_recorded_log(entries)
    live = (
        None
        if from_seq is None
        else _LiveContinuation(recording.session_id, kept, from_seq, prompt, fork_id or new_id())
    )
    if live is not None:
        live.check(record)
    elif not any(isinstance(entry.event, ModelRequested) for entry in entries):
        raise UsageError(f"session {recording.session_id!r} has never asked a model: there is nothing to replay")
    _check_code(recording.session_id, record, code, added)
    drive = Replayer(agent, recording, record, code, added)
    driven, compared = await drive.replay_all(entries), drive.check
    replayed = ReplayReport(
        recording.session_id,
        driven.runs,
        compared.requests,
        compared.divergence,
        driven.outcomes,
        driven.skipped,
        compared.prefixes,
    )
    return replayed if live is None else replace(replayed, branch=await live.run_live(agent, record, code))


async def _load_recording(store: Store, source: Source) -> Recording:
    if isinstance(source, Recording):
        return source
    if isinstance(source, str):
        check_not_reserved(source, store)
        entries = await store.read(source)
        if not entries:
            raise SessionNotFound(f"there is no session {source!r} to replay: store.list() lists them")
        return Recording(source, entries)
    if isinstance(source, Mapping):
        return read_document(source)
    return Recording("replayed", source)


def _check_code(session_id: str, record: RecordedLog, code: RunOverrides, added: Sequence[Tool[..., Any]]) -> None:
    """Raise `UsageError` for tools and other Python objects that the recorded runs need and that were not passed."""
    missing = sorted({name for segment in record.segments for name in list_missing_options(segment, code)})
    if missing:
        given = ", ".join(f"{name}=…" for name in missing)
        raise UsageError(f"session {session_id!r} has runs with code of their own, which no log can keep: give {given}")
    if unknown := record.added - {tool.name for tool in added}:
        names = ", ".join(sorted(unknown))
        raise UsageError(f"session {session_id!r} has tools that other tools have added ({names}): give added=[…]")


def _check_from_seq(source: Source, from_seq: int, entries: Sequence[Entry]) -> None:
    if not isinstance(source, str):
        raise UsageError("from_seq goes on in a fork of a kept session: give its id, and import a document first")
    checks.require_int("replay", "from_seq", from_seq, 1)
    if from_seq > len(entries):
        raise UsageError(f"session {source!r} has {len(entries)} entries: it cannot be replayed up to {from_seq}")


class _LiveContinuation(Struct, frozen=True):
    """The live run, with the real model and tools, that continues a fork after a replay up to `from_seq`."""

    session_id: str
    store: Store
    from_seq: int
    prompt: Content | Message | None
    fork_id: str

    def check(self, record: RecordedLog) -> None:
        """Raise `UsageError` if there is no run to resume and no prompt."""
        last = record.segments[-1] if record.segments else None
        if self.prompt is None and (last is None or last.ended is not None or last.begins == "call"):
            place = f"entry {self.from_seq} of session {self.session_id!r}"
            raise UsageError(f"{place} is between two runs: give a prompt, which is then answered")

    async def run_live(self, agent: Agent[Any], record: RecordedLog, code: RunOverrides) -> Outcome[Any]:
        """Fork the session at the last replayed entry, and resume its run there or answer the prompt."""
        await self.store.fork(self.session_id, self.fork_id, at=self.from_seq)
        session = ReplaySession(agent, self.fork_id, self.store)
        try:
            if self.prompt is not None:
                return await session.run(self.prompt, **code)
            if "model" in record.segments[-1].started.options.get("code", ()):
                code = cast("RunOverrides", {"model": agent.model, **code})
            return await session.resume(**code)
        finally:
            await session.aclose()
