"""Replay: a kept session is a recording. Above: callers, the command line, tests. Below: sessions and the record.

The same prompts are put to the agent as it is today, in a store of its own. The model's replies, the results of the
tools, the answers of people and the time come from the log; nothing has an effect. What the agent does is compared with
the log, entry by entry, and the first difference ends the replay.

    replay.py           what callers see; drives the sessions
    replay_record.py    the log, read as a recording
    replay_check.py     what happens now, held against it
    replay_tape.py      where the replay stands; the model, tools and gate that take its words
    replay_doubles.py   the clock and the store
    replay_diff.py      the difference, in words
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from windlass.agent import Agent
from windlass.core import check
from windlass.core.clock import new_id
from windlass.core.error import SessionNotFound, UsageError
from windlass.core.event import Entry, QuestionAsked
from windlass.core.message import Content, Message
from windlass.core.model import info_of
from windlass.core.outcome import Outcome
from windlass.core.store import Store
from windlass.core.tool import Tool
from windlass.override import Options, restored
from windlass.session import Session
from windlass.stores import open_store
from windlass.transfer import Prefix, Recording, read_document

from .check import Check, Stopped
from .diff import About, Divergence
from .doubles import ComparingStore
from .record import Record, Stretch, read_record
from .tape import RecordedModel, Tape

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
    replayed = await _Replay(agent, recording, record, code, added).whole(entries)
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
    missing = sorted({name for stretch in record.stretches for name in _missing(stretch, code)})
    if missing:
        given = ", ".join(f"{name}=…" for name in missing)
        raise UsageError(f"session {session_id!r} has runs with code of their own, which no log can keep: give {given}")
    if unknown := record.added - {tool.name for tool in added}:
        names = ", ".join(sorted(unknown))
        raise UsageError(f"session {session_id!r} has tools that other tools have added ({names}): give added=[…]")


def _missing(stretch: Stretch, code: Options) -> list[str]:
    """The code that a run needs and was not given. Its model is the record, and what only its tools use is not used."""
    needed = set(stretch.started.options.get("code", ())) - {"model", "deps"}
    return [name for name in needed if name not in code] if stretch.begins != "call" else []


def _check_place(source: Source, from_seq: int, entries: Sequence[Entry]) -> None:
    if not isinstance(source, str):
        raise UsageError("from_seq goes on in a fork of a kept session: give its id, and import a document first")
    check.whole_number("replay", "from_seq", from_seq, 1)
    if from_seq > len(entries):
        raise UsageError(f"session {source!r} has {len(entries)} entries: it cannot be replayed up to {from_seq}")


class _Replay:
    """One replay, stretch by stretch."""

    def __init__(
        self,
        agent: Agent[Any],
        recording: Recording,
        record: Record,
        code: Options,
        added: Sequence[Tool[..., Any]],
    ) -> None:
        self._recording = recording
        self._record = record
        self._code = code
        self._check = Check(record, recording.prefixes)
        self._tape = Tape(self._check, added)
        self._agent = agent.replace(
            model=RecordedModel(self._tape, info_of(agent.model)),
            tools=[self._tape.served(tool) for tool in agent.tools],
            permission=self._tape.gate(agent.permission),
            clock=self._tape.clock,
            watchers=(),
            store="memory:",
            steering_mode="all",  # what came together then comes together now
            follow_up_mode="all",
            patience_seconds=0.0,
        )

    async def whole(self, entries: Sequence[Entry]) -> Replayed:
        """Replay everything, or up to the first difference."""
        outcomes: list[Outcome[Any]] = []
        runs = skipped = 0
        in_step = False
        for stretch in self._record.stretches:
            if stretch.begins == "call":
                skipped, in_step = skipped + 1, False
                continue
            if not in_step:
                await self._open(entries[: stretch.entries[0].seq - 1])
            runs += stretch.begins != "resume"
            outcome = await self._drive(stretch)
            if self._check.divergence is not None:
                break
            in_step = outcome is not None
            outcomes += [outcome] if outcome is not None else []
        name, check = self._recording.session_id, self._check
        return Replayed(name, runs, check.requests, check.divergence, tuple(outcomes), skipped, check.prefixes)

    async def _open(self, before: Sequence[Entry]) -> None:
        """A session that begins with what was recorded: at the start, and where a crash or a call came in between."""
        store = ComparingStore(self._check)
        await store.hold(self._recording.session_id, before)
        self._tape.open(self._agent.session(self._recording.session_id, store=store))

    async def _drive(self, stretch: Stretch) -> Outcome[Any] | None:
        """Replay one stretch. Its outcome is missing when it was cut off, or the replay has left the record."""
        await self._tape.begin(stretch)
        session, overrides = self._tape.session, self._overrides(stretch)
        try:
            outcome = await self._begun(stretch, session, overrides)
            while outcome is not None and outcome.status == "waiting":
                answered = await self._answered(session, outcome.questions)
                outcome = await session.resume(**overrides) if answered else None
        except Stopped:
            return None
        finally:
            await session.aclose()
        self._check.finish()
        return outcome

    async def _begun(self, stretch: Stretch, session: Session, overrides: Options) -> Outcome[Any] | None:
        if stretch.begins == "resume":
            return await session.resume(**overrides)
        if stretch.begins == "wake":
            return await session.wake()
        prompt = stretch.prompt
        if prompt is None:
            raise Stopped("the record breaks off before the prompt")
        if not stretch.interrupted or stretch.exchanges:
            return await session.run(prompt, **overrides)
        stream = session.stream(prompt, **overrides)  # it was cancelled before it began
        ending = asyncio.ensure_future(stream.outcome())
        await asyncio.sleep(0)
        await stream.cancel()
        return await ending

    async def _answered(self, session: Session, questions: Sequence[QuestionAsked]) -> bool:
        """Answer as people did then; `False` when nobody has."""
        known = {(ask.about, _calls_of(ask)): answered for ask, answered in self._record.answers}
        for question in questions:
            answered = known.get((question.about, _calls_of(question)))
            if answered is None:
                return False
            await session.answer(question.ask_id, answered.answer)
        return True

    def _overrides(self, stretch: Stretch) -> Options:
        """How this run differs from others. The model is the record, whoever was to answer."""
        options = stretch.started.options
        own: set[str] = set(options.get("code", ()))
        again = cast("Options", {name: value for name, value in self._code.items() if name in own})
        data = {name: value for name, value in options.items() if name not in {"code", "model"}}
        overrides: Options = {**restored(data, {}), **again}
        overrides.pop("model", None)
        if "tools" in overrides:
            overrides["tools"] = [self._tape.served(tool) for tool in overrides["tools"]]
        if "permission" in overrides:
            overrides["permission"] = self._tape.gate(overrides["permission"])
        return overrides


def _calls_of(question: QuestionAsked) -> tuple[str, ...]:
    return tuple([str(call["call_id"]) for call in question.calls])


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
