"""Holds the log of a session against outside evidence: the ledger of effects, and what the processes told.

It lists what is wrong instead of asserting it, so that a test can also demand that a bug is found. The invariants:

    I1  what was acknowledged is in the log            I5  every request that reached the model was valid
    I2  the log has no gap, and nothing is there twice I6  nobody writes after somebody else has
    I3  each intent has one effect at most             I7  the session can be used at once
    I4  a result says what has happened                I9  no effect without an earlier permission for its arguments
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tests.faults.children import checksum
from tests.faults.plan import (
    FORBIDDEN,
    LAST_ANSWER,
    LAST_PROMPT,
    LAST_WISH,
    NEEDS_PERMISSION,
    ONCE,
    STEERING,
    Item,
    prompts_of,
)
from tests.transcript import assert_valid
from windlass.core.event import Entry, MessageAdded, PermissionDecided, RunEnded, ToolFinished, ToolStarted
from windlass.core.fold import CRASHES, CUT_OFF, INTERRUPTED, fold
from windlass.core.message import Status, ToolCall

USABLE_SECONDS = 5.0
"""A session answers a new prompt within this time after a crash."""


_ENDS = frozenset(f"ended {end}" for end in ("done", "ok", "denied", " ".join(CRASHES[:2]), " ".join(CUT_OFF[:2])))
"""How runs and calls may end; the last when somebody else has closed it."""


class Effect(NamedTuple):
    """A line of the ledger."""

    tool: str
    key: str
    what: str


class Testimony(NamedTuple):
    """What one process has told about a session."""

    lines: Sequence[str]
    was_killed: bool


class Evidence(NamedTuple):
    """Everything that is known about a session and its processes."""

    items: Sequence[Item]
    """What was to be done."""
    entries: Sequence[Entry]
    """The log at the end."""
    effects: Sequence[Effect]
    """What has really happened, in order."""
    testimonies: Sequence[Testimony]
    """Of every process; the last one of these had to finish everything."""
    seconds: float
    """How long that one took."""
    waiting: Collection[str] = ()
    """The posts that nobody has taken."""

    @property
    def told(self) -> list[str]:
        """Every line of every process."""
        return [line for testimony in self.testimonies for line in testimony.lines]


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


def violations(evidence: Evidence) -> list[str]:
    """What is wrong; nothing when every promise was kept."""
    checks = (
        _outcomes,
        _log,
        _writers,
        _fenced,
        _acknowledged,
        _requests,
        _effects,
        _permissions,
        _results,
        _plan,
        _usable,
    )
    return [violation for check in checks for violation in check(evidence)]


def _outcomes(evidence: Evidence) -> Iterator[str]:
    """I7: every run that came to its end was answered, unless it was killed again and again at the same place."""
    for line in evidence.told:
        if line.startswith("ended ") and line.strip() not in _ENDS:
            yield f"I7: a run has {line}"


def _log(evidence: Evidence) -> Iterator[str]:
    """I2: it has no gap, names nothing twice, is closed, and its conversation is valid."""
    entries = evidence.entries
    if [entry.seq for entry in entries] != [*range(1, len(entries) + 1)]:
        yield "I2: the log has a gap"
    if len({entry.id for entry in entries}) != len(entries):
        yield "I2: two entries have the same name"
    state = fold(entries)
    if state.interrupted or state.unsettled or state.started:
        yield "I2: the log is not closed"
    try:
        assert_valid(state.messages)
    except AssertionError as error:
        yield f"I5: the history is invalid: {error}"


def _writers(evidence: Evidence) -> Iterator[str]:
    """I6: each writer has one stretch of the log, for whoever takes over has a name of its own."""
    gone: set[str] = set()
    last = ""
    for entry in evidence.entries:
        writer = _writer(entry)
        if not writer:  # a post that was taken has the name of the post
            continue
        if writer in gone:
            yield f"I6: {writer} has written entry {entry.seq} after {last} had taken over"
        if writer != last:
            gone.add(last)
        last = writer


def _fenced(evidence: Evidence) -> Iterator[str]:
    """I6: whoever lost the session in the middle of a run, and lives, has noticed."""
    last = {writer: entry for entry in evidence.entries if (writer := _writer(entry))}
    for testimony in evidence.testimonies:
        writers = {line.split(" ")[2].rpartition("-")[0] for line in testimony.lines if line.startswith("stored ")}
        lost = [writer for writer in writers if writer in last and not isinstance(last[writer].event, RunEnded)]
        if lost and not testimony.was_killed and not any(line.startswith("fenced ") for line in testimony.lines):
            yield f"I6: {lost} lost the session, and was not told so"


def _acknowledged(evidence: Evidence) -> Iterator[str]:
    """I1: what a process has told as stored is there."""
    there = {f"stored {entry.seq} {entry.id}" for entry in evidence.entries}
    for line in evidence.told:
        if line.startswith("stored ") and line not in there:
            yield f"I1: lost: {line}"
    taken = {entry.id for entry in evidence.entries}
    for post in [line.removeprefix("posted ") for line in evidence.told if line.startswith("posted ")]:
        if (post in taken) == (post in evidence.waiting):
            yield f"I1: post {post} is {'taken, and waits' if post in taken else 'lost'}"


def _requests(evidence: Evidence) -> Iterator[str]:
    """I5: every request was valid, and its history is the one that is kept."""
    messages = fold(evidence.entries).messages
    known = {len(messages): checksum(messages)}
    for line in evidence.told:
        kind, _, rest = line.partition(" ")
        if kind == "INVALID":
            yield f"I5: {line}"
        elif kind == "request":
            length, told = map(int, rest.split())
            if length not in known:
                known[length] = checksum(messages[:length])
            if known[length] != told:
                yield f"I1: the model was asked about {length} messages that are not the first ones of the log"


def _effects(evidence: Evidence) -> Iterator[str]:
    """I3: none is doubled, each had an intent, and it is what was asked for."""
    intents = Counter(event.idempotency_key for event in _of(evidence, ToolStarted))
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


def _permissions(evidence: Evidence) -> Iterator[str]:
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


def _results(evidence: Evidence) -> Iterator[str]:
    """I4: each call has one, and it says what has happened."""
    happened = Counter(_call_id(effect.key) for effect in evidence.effects)
    for call_id, count in Counter(event.call_id for event in _of(evidence, ToolFinished)).items():
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
    if result.status is Status.UNKNOWN and result.text != INTERRUPTED:
        yield f"I4: {settled} is unknown, and does not say what to do: {result.text}"
    if result.status is Status.UNKNOWN and result.name not in ONCE and not settled.run_was_cut_off:
        yield f"I4: {settled} may be repeated, and was not"
    if result.status is Status.CANCELLED_BEFORE_START and not settled.run_was_cut_off:
        yield f"I4: {settled} was given up, though its run went on"
    if result.status in {Status.ERROR, Status.TIMED_OUT, Status.CANCELLED}:
        yield f"I4: {settled} is {result.status}: {result.text}"


def _settled(evidence: Evidence) -> Iterator[Settled]:
    intents: dict[str, list[tuple[ToolStarted, str]]] = {}
    closed = {CUT_OFF[1], CRASHES[1]}
    cut_off = {event.run_id for event in _of(evidence, RunEnded) if event.reason in closed}
    for entry in evidence.entries:
        event = entry.event
        if isinstance(event, ToolStarted):
            intents.setdefault(event.call_id, []).append((event, _writer(entry)))
        elif isinstance(event, ToolFinished):
            known = intents.get(event.call_id, [])
            last = known[-1][1] if known else ""
            yield Settled(event, [intent for intent, _ in known], last, _writer(entry), event.run_id in cut_off)


def _plan(evidence: Evidence) -> Iterator[str]:
    """I1: each prompt is there once and in order, and the conversation came to its end."""
    messages = fold(evidence.entries).messages
    wanted = [item.name for item in evidence.items if not item.is_call]
    said = prompts_of(messages)
    if said[: len(wanted)] != wanted or set(said[len(wanted) :]) - {LAST_PROMPT}:
        yield f"I1: the prompts are {said}, and {wanted} were given"
    steering = [message.text for message in messages if message.text.startswith(STEERING)]
    if len(set(steering)) != len(steering):
        yield f"I1: steering came twice: {steering}"
    if not messages or messages[-1].text != LAST_ANSWER:
        yield "I7: the conversation has not come to its end"


def _usable(evidence: Evidence) -> Iterator[str]:
    """I7: the last process got the session, and finished with it in good time."""
    last = evidence.testimonies[-1]
    if not last.lines or last.lines[-1] != "finished":
        yield f"I7: the last process has not finished: {last}"
    if evidence.seconds > USABLE_SECONDS:
        yield f"I7: the session could be used only after {evidence.seconds:.1f} s"


def _arguments(evidence: Evidence) -> dict[str, str]:
    """What the model has asked for, by call."""
    messages = [event.message for event in _of(evidence, MessageAdded)]
    return {part.call_id: part.arguments for message in messages for part in message.parts if type(part) is ToolCall}


def _call_id(key: str) -> str:
    return key.rpartition("/")[2]


def _writer(entry: Entry) -> str:
    """Who has stored an entry: each driver of each run has a name of its own."""
    return entry.id.rpartition("-")[0]


def _of(evidence: Evidence, kind):
    return [entry.event for entry in evidence.entries if isinstance(entry.event, kind)]
