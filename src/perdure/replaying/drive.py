"""A replay, stretch by stretch: the same beginnings are put to the agent, and what it does is followed.

Above: `replay.py`. Below: sessions, `offline.py` and the record.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from perdure.agent import Agent
from perdure.core.error import ConfigError
from perdure.core.event import Entry, GrantRevoked, QuestionAsked
from perdure.core.outcome import Outcome
from perdure.core.tool import Tool
from perdure.override import Options, restored
from perdure.transfer import Recording

from .calls import Calls
from .check import Check, Stopped
from .doubles import ComparingStore
from .gate import recorded_gate
from .offline import offline, tools_of_skills
from .record import Record
from .session import RecordedSession
from .stretch import Stretch
from .tape import Tape

_UNUSED: Mapping[str, Any] = {"deps": None, "ledger": None}
"""What a run may have been given that only its tools and its model use: neither is asked."""


class Driven(Struct):
    """What came of it."""

    runs: int = 0
    """Runs that were replayed, to their end or to where the replay ended."""
    skipped: int = 0
    """Runs that were only a call."""
    outcomes: tuple[Outcome[Any], ...] = ()


def missing_code(stretch: Stretch, code: Options) -> list[str]:
    """The code that a run needs and was not given. Its model is the record, and what only its tools use is not used."""
    needed = set(stretch.started.options.get("code", ())) - {"model", *_UNUSED}
    return [name for name in needed if name not in code] if stretch.begins != "call" else []


class Drive:
    """One replay."""

    def __init__(
        self,
        agent: Agent[Any],
        recording: Recording,
        record: Record,
        code: Options,
        added: Sequence[Tool[..., Any]],
    ) -> None:
        self.check = Check(record, recording.prefixes)
        """What compares."""
        self._name = recording.session_id
        self._record = record
        self._code = code
        self._tape = Tape(self.check)
        known = {tool.name: tool for tool in (*tools_of_skills(agent), *added)}
        self._agent = offline(agent, self._tape, Calls(self._tape, known))

    async def whole(self, entries: Sequence[Entry]) -> Driven:
        """Replay everything, or up to the first difference."""
        driven = Driven()
        reached = -1  # the last entry that the session has, if it has all of them
        for stretch in self._record.stretches:
            if stretch.begins == "call":
                driven.skipped += 1
                continue
            first = stretch.entries[0].seq
            if reached + 1 != first:
                await self._open(entries[: first - 1], max(reached, 0))
            driven.runs += stretch.begins != "resume"
            outcome = await self._drive(stretch)
            if self.check.divergence is not None:
                break
            reached = -1 if outcome is None else stretch.entries[-1].seq
            driven.outcomes += () if outcome is None else (outcome,)
        return driven

    async def _open(self, before: Sequence[Entry], reached: int) -> None:
        """A session that begins with what was recorded: at the start, and where something came in between."""
        store = ComparingStore(self.check)
        await store.hold(self._name, before)
        self._tape.session = RecordedSession(self._agent, self._name, store)
        for event in [entry.event for entry in before[reached:]]:
            if isinstance(event, GrantRevoked):
                for gate in self._tape.gates:
                    gate.grants.forget(event.grant_id)

    async def _drive(self, stretch: Stretch) -> Outcome[Any] | None:
        """Replay one stretch. Its outcome is missing when it was cut off, or the replay has left the record."""
        await self._tape.begin(stretch)
        session, overrides = self._tape.session, self._overrides(stretch)
        try:
            if stretch.begins == "run" and not stretch.opening:
                raise Stopped("the record breaks off before the prompt")  # noqa: TRY301 - as anywhere else
            outcome = await session.begin(stretch, overrides)
            while outcome is not None and outcome.status == "waiting":
                answered = not stretch.waits and await self._answered(session, outcome.questions)
                outcome = await session.resume(**overrides) if answered else None
        except Stopped:
            return None
        except ConfigError as error:  # a role, an agent or a tool that it needs is not there any more
            self.check.diverge(stretch.entries[0].seq, "request", "the run cannot be begun", "a run", str(error))
            return None
        finally:
            await session.aclose()
        self.check.finish()
        return outcome

    async def _answered(self, session: RecordedSession, questions: Sequence[QuestionAsked]) -> bool:
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
        again: dict[str, Any] = {name: value for name, value in {**_UNUSED, **self._code}.items() if name in own}
        data = {name: value for name, value in options.items() if name not in {"code", "model"}}
        overrides: Options = {**restored(data, {}), **cast("Options", again)}
        if "model" in options or "model" in own:
            overrides["model"] = self._agent.model
        if "permission" in overrides:
            overrides["permission"] = recorded_gate(self._tape, overrides["permission"])
        if "ledger" in overrides:
            overrides["ledger"] = None
        return overrides


def _calls_of(question: QuestionAsked) -> tuple[str, ...]:
    return tuple([str(call["call_id"]) for call in question.calls])
