"""Replay: a kept session is a recording. Above: callers, the command line, tests. Below: sessions and the record.

The same prompts are put to the agent as it is today, in a store of its own. The model's replies, the results of the
tools, the answers of people and the time come from the log; nothing has an effect. What the agent does is compared with
the log, entry by entry, and the first difference ends the replay.

    replay.py     what callers see
    drive.py      drives the sessions, one stretch of a run after the other
    record.py     the log, read as a recording; `stretch.py` has what happened in a piece of a run
    check.py      what happens now, held against it; `prefix.py` knows hashes, `diff.py` tells the difference in words
    offline.py    the agent with stand-ins: `calls.py` for tools, `gate.py` for people, `upkeep.py` for summaries
    tape.py       where the replay stands, and the model; `session.py`, `doubles.py`: the session, the clock, the store
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from perdure.agent import Agent
from perdure.core import check
from perdure.core.clock import new_id
from perdure.core.error import SessionNotFound, UsageError
from perdure.core.event import Entry
from perdure.core.message import Content, Message
from perdure.core.outcome import Outcome
from perdure.core.store import Store
from perdure.core.tool import Tool
from perdure.override import Options
from perdure.stores import open_store
from perdure.transfer import Prefix, Recording, read_document

from .diff import About, Divergence
from .drive import Drive, missing_code
from .record import Record, read_record

__all__ = ["About", "Divergence", "Replayed", "Source", "replay"]

Source: TypeAlias = str | Sequence[Entry] | Mapping[str, Any] | Recording
"""What can be replayed: a session by its id, its entries, or a document that `export_session` made."""


class Replayed(Struct, frozen=True):
    """What came of a replay."""

    session_id: str
    runs: int
    """Runs that were replayed, to their end or to where the replay ended."""
    turns: int
    """Requests that were as recorded."""
    divergence: Divergence | None = None
    """The first place where something else happens now; `None` when all of it agrees."""
    outcomes: tuple[Outcome[Any], ...] = ()
    """How the replayed runs ended; those that a crash had cut off have none."""
    skipped: int = 0
    """Runs that were only a call of a tool: the log does not keep what it was called with."""
    prefixes: Mapping[str, Prefix] = {}
    """What the hashes in the requests stand for, for `export_session`."""
    branch: Outcome[Any] | None = None
    """How the live run ended that went on from there, when one was asked for; its `session_id` names the fork."""

    @property
    def agrees(self) -> bool:
        """Whether everything happens as recorded."""
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
    **code: Unpack[Options],
) -> Replayed:
    """Run a recorded session again, offline, and tell where it does not do the same.

    Args:
        agent: Who is to do it now. Its model and its tools are not asked, its store is not written.
        source: What was recorded.
        store: Where the session of that id is kept; the agent's store when it is not said.
        from_seq: Replay up to this entry, then go on live: in a fork of the session, with the real model and the real
            tools. A run that is cut there is resumed.
        prompt: What to say in that fork, instead of resuming.
        fork_id: What to call it; a new name when it is not said.
        added: Tools that were added by other tools while a run was going.
        code: What recorded runs were given of their own and no log can keep: `tools`, `permission`, `engine`, `deps`.
            For the live run, any of the overrides.

    Raises `SessionNotFound`, `UsageError` when there is nothing to replay or code is missing, and `StoreError` when the
    log is damaged.
    """
    kept = agent.store if store is None else open_store(store)
    recording = await _recording(kept, source)
    entries = recording.entries
    if from_seq is not None:
        _check_place(source, from_seq, entries)
        entries = entries[:from_seq]
    record = read_record(entries)
    live = None if from_seq is None else _Live(recording.session_id, kept, from_seq, prompt, fork_id or new_id())
    if live is not None:
        live.check(record)
    elif not any(stretch.exchanges for stretch in record.stretches):
        raise UsageError(f"session {recording.session_id!r} has never asked a model: there is nothing to replay")
    _check_code(recording.session_id, record, code, added)
    drive = Drive(agent, recording, record, code, added)
    driven, compared = await drive.whole(entries), drive.check
    replayed = Replayed(
        recording.session_id,
        driven.runs,
        compared.requests,
        compared.divergence,
        driven.outcomes,
        driven.skipped,
        compared.prefixes,
    )
    return replayed if live is None else replace(replayed, branch=await live.go_on(agent, record, code))


async def _recording(store: Store, source: Source) -> Recording:
    if isinstance(source, Recording):
        return source
    if isinstance(source, str):
        entries = await store.read(source)
        if not entries:
            raise SessionNotFound(f"there is no session {source!r} to replay: store.list() tells which there are")
        return Recording(source, entries)
    if isinstance(source, Mapping):
        return read_document(source)
    return Recording("replayed", source)


def _check_code(session_id: str, record: Record, code: Options, added: Sequence[Tool[..., Any]]) -> None:
    """Say what is missing, before anything is replayed."""
    missing = sorted({name for stretch in record.stretches for name in missing_code(stretch, code)})
    if missing:
        given = ", ".join(f"{name}=…" for name in missing)
        raise UsageError(f"session {session_id!r} has runs with code of their own, which no log can keep: give {given}")
    if unknown := record.added - {tool.name for tool in added}:
        names = ", ".join(sorted(unknown))
        raise UsageError(f"session {session_id!r} has tools that other tools have added ({names}): give added=[…]")


def _check_place(source: Source, from_seq: int, entries: Sequence[Entry]) -> None:
    if not isinstance(source, str):
        raise UsageError("from_seq goes on in a fork of a kept session: give its id, and import a document first")
    check.whole_number("replay", "from_seq", from_seq, 1)
    if from_seq > len(entries):
        raise UsageError(f"session {source!r} has {len(entries)} entries: it cannot be replayed up to {from_seq}")


class _Live(Struct, frozen=True):
    """What is to happen live, after a replay."""

    session_id: str
    store: Store
    from_seq: int
    prompt: Content | Message | None
    fork_id: str

    def check(self, record: Record) -> None:
        """Say when there is nothing to go on with."""
        last = record.stretches[-1] if record.stretches else None
        if self.prompt is None and (last is None or last.ended is not None or last.begins == "call"):
            place = f"entry {self.from_seq} of session {self.session_id!r}"
            raise UsageError(f"{place} is between two runs: give a prompt, which is then answered")

    async def go_on(self, agent: Agent[Any], record: Record, code: Options) -> Outcome[Any]:
        """Fork the session, and go on there."""
        await self.store.fork(self.session_id, self.fork_id, at=self.from_seq)
        session = agent.session(self.fork_id, store=self.store)
        try:
            if self.prompt is not None:
                return await session.run(self.prompt, **code)
            if "model" in record.stretches[-1].started.options.get("code", ()):
                code = cast("Options", {"model": agent.model, **code})
            return await session.resume(**code)
        finally:
            await session.aclose()
