"""The part of the audit that is about calls: their effects, permissions and results. Above: `auditor.py`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perdure import Status, ToolCall
from perdure._core.log.repair import ENDING_CRASH_LOOP, ENDING_PROCESS_DIED, describe_interrupted_call
from perdure.events import MessageAdded, PermissionDecided, RunEnded, ToolFinished, ToolStarted
from tests.faults.evidence import Evidence, writer_of
from tests.faults.plan import FORBIDDEN, LAST_WISH, NEEDS_PERMISSION, ONCE


class Settled(NamedTuple):
    """A call that has its result: what the log says about it."""

    finished: ToolFinished
    intents: Sequence[ToolStarted]
    intended_by: str
    """Who stored the last intent; empty when there is none."""
    settled_by: str
    """Who stored the result."""
    run_was_cut_off: bool
    """Whether its run was closed by a later one, instead of resumed."""

    def __str__(self) -> str:
        return f"{self.finished.name} {self.finished.call_id}"


def effects(evidence: Evidence) -> Iterator[str]:
    """I3: none is doubled, each had an intent, and it is what was asked for."""
    intents = Counter(event.idempotency_key for event in evidence.of_kind(ToolStarted))
    wanted = _arguments(evidence)
    for effect, count in Counter(evidence.effects).items():
        if effect.tool in ONCE and count > 1:
            yield f"I3: doubled: {effect.tool} {effect.key} happened {count} times"
        elif not intents[effect.key]:
            yield f"I3: no intent: {effect.tool} {effect.key}"
        elif count > intents[effect.key]:
            yield f"I3: {effect.tool} {effect.key} happened {count} times for {intents[effect.key]} intents"
        if f'"{effect.what}"' not in wanted.get(_call_id(effect.key), f'"{effect.what}"'):
            yield f"I9: {effect.tool} {effect.key} was done with other arguments than asked for"
    happened = Counter(what for tool, _, what in set(evidence.effects) if tool in ONCE)
    for what, count in happened.items():
        if count > 1 and what != LAST_WISH:  # which is asked for again when its run was parked
            yield f"I3: doubled: {what} happened under {count} keys"


def permissions(evidence: Evidence) -> Iterator[str]:
    """I9: whoever decides has allowed it, and the log has known that before the intent."""
    allowed = {line.removeprefix("allowed ") for line in evidence.told if line.startswith("allowed ")}
    kept: set[str] = set()
    may_begin: set[str] = set()
    for event in (entry.event for entry in evidence.entries):
        if isinstance(event, PermissionDecided) and event.allow:
            kept.add(f"{event.call_id} {event.arguments_hash}")
        elif isinstance(event, ToolStarted) and f"{event.call_id} {event.arguments_hash}" in kept & allowed:
            may_begin.add(event.idempotency_key)
    for effect in evidence.effects:
        if effect.tool == NEEDS_PERMISSION and (effect.key not in may_begin or effect.what.startswith(FORBIDDEN)):
            yield f"I9: nobody has allowed {effect.tool} {effect.key}"


def results(evidence: Evidence) -> Iterator[str]:
    """I4: each call has one, and it says what has happened."""
    happened = Counter(_call_id(effect.key) for effect in evidence.effects)
    for call_id, count in Counter(event.call_id for event in evidence.of_kind(ToolFinished)).items():
        if count > 1:
            yield f"I4: {call_id} has {count} results"
    for settled in _settled(evidence):
        if len({intent.idempotency_key for intent in settled.intents}) > 1:
            yield f"I3: {settled} was tried under different keys"
        yield from _result(settled, happened[settled.finished.call_id])


def _result(settled: Settled, happened: int) -> Iterator[str]:
    """A crash between intent and result makes the result unknown, and nothing else does."""
    result = settled.finished.result
    is_in_doubt = bool(settled.intents) and settled.intended_by != settled.settled_by
    if (result.status is Status.UNKNOWN) != is_in_doubt:
        yield f"I4: {settled} is {result.status}, and it is {'' if is_in_doubt else 'not '}in doubt"
    if result.status is Status.OK and not happened:
        yield f"I4: {settled} is ok, and nothing has happened"
    if result.status in {Status.DENIED, Status.CANCELLED_BEFORE_START} and (happened or settled.intents):
        yield f"I4: {settled} is {result.status}, and it had begun"
    effect = settled.intents[-1].effect if settled.intents else ""
    if result.status is Status.UNKNOWN and result.text != describe_interrupted_call(effect):
        yield f"I4: {settled} is unknown, and does not say what to do: {result.text}"
    if result.status is Status.UNKNOWN and result.name not in ONCE and not settled.run_was_cut_off:
        yield f"I4: {settled} may be repeated, and was not"
    if result.status is Status.CANCELLED_BEFORE_START and not settled.run_was_cut_off:
        yield f"I4: {settled} was given up, though its run went on"
    if result.status in {Status.ERROR, Status.TIMED_OUT, Status.CANCELLED}:
        yield f"I4: {settled} is {result.status}: {result.text}"


def _settled(evidence: Evidence) -> Iterator[Settled]:
    intents: dict[str, list[tuple[ToolStarted, str]]] = {}
    closed = {ENDING_PROCESS_DIED[1], ENDING_CRASH_LOOP[1]}
    cut_off = {event.run_id for event in evidence.of_kind(RunEnded) if event.reason in closed}
    for entry in evidence.entries:
        event = entry.event
        if isinstance(event, ToolStarted):
            intents.setdefault(event.call_id, []).append((event, writer_of(entry)))
        elif isinstance(event, ToolFinished):
            known = intents.get(event.call_id, [])
            last = known[-1][1] if known else ""
            yield Settled(event, [intent for intent, _ in known], last, writer_of(entry), event.run_id in cut_off)


def _arguments(evidence: Evidence) -> dict[str, str]:
    """What the model has asked for, by call."""
    messages = [event.message for event in evidence.of_kind(MessageAdded)]
    return {part.call_id: part.arguments for message in messages for part in message.parts if type(part) is ToolCall}


def _call_id(key: str) -> str:
    return key.rpartition("/")[2]


OF_CALLS = (effects, permissions, results)
"""What is looked at, each giving what is wrong with it."""
