"""Replay a stored session offline, and compare it with its log.

The recorded prompts are given to the agent as it is today, in a separate store. The model's replies, tool results,
answers of users and the time are taken from the log; nothing has side effects. What the agent does is compared with the
log, entry by entry, and the first difference ends the replay.

    replay.py                    the public function
    replayer.py                  replays a log, one segment of a run after the other
    recorded_log_index.py        the log, indexed for a replay; `run_segment.py` is one segment of a run
    log_comparison.py            compares with the log; `difference_text.py` describes differences
    offline_agent.py             the agent with stand-ins: `recorded_tools.py`, `recorded_permissions.py`,
                                 `recorded_compaction.py`
    recorded_input_playback.py   position in the log, model; `session_for_replay.py`,
                                 `recorded_clock_and_store.py`: session, clock, store
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from perdure.core import argument_checks
from perdure.core.clock_and_ids import new_id
from perdure.core.error import SessionNotFound, UsageError
from perdure.core.event import Entry, ModelRequested
from perdure.core.message import Content, Message
from perdure.core.outcome import Outcome
from perdure.core.reserved_session_ids import check_not_reserved
from perdure.core.store import Store
from perdure.core.tool import Tool
from perdure.runtime.agent import Agent
from perdure.runtime.overrides import RunOverrides
from perdure.session_transfer import PromptPrefix, Recording, read_document
from perdure.stores import open_store

from .difference_text import DifferenceKind, Divergence
from .recorded_log_index import RecordedLog, index_recorded_log
from .replayer import Replayer, list_missing_options
from .session_for_replay import ReplaySession

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
    argument_checks.require_int("replay", "from_seq", from_seq, 1)
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
