"""Holds a log against outside evidence: the ledger of effects, and what the processes told before they died.

It lists what is wrong instead of asserting it, so that a test can also demand that a bug is found.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tests.transcript import assert_valid
from windlass.core.event import Entry, PermissionDecided, ToolFinished, ToolStarted
from windlass.core.fold import INTERRUPTED, fold
from windlass.core.message import Status, ToolResult

ONCE = ("pay", "sign")
"""Tools whose effect may happen once at most."""


class Evidence(NamedTuple):
    """Everything that is known about a conversation and its processes."""

    entries: Sequence[Entry]
    """The log at the end."""
    effects: Sequence[tuple[str, str]]
    """Tool and idempotency key of each effect, in order."""
    told: Sequence[str]
    """Every line of every process."""
    in_doubt: Collection[str]
    """Calls that had begun, had no result, and may not run again, at the time of some kill."""


def violations(evidence: Evidence) -> list[str]:
    """What is wrong; nothing when every promise was kept."""
    checks = (_log, _acknowledged, _requests, _effects, _results, _doubts, _prompts)
    return [violation for check in checks for violation in check(evidence)]


def _log(evidence: Evidence) -> Iterator[str]:
    """It has no gap, names nothing twice, is closed, and its conversation is valid."""
    entries = evidence.entries
    if [entry.seq for entry in entries] != [*range(1, len(entries) + 1)]:
        yield "the log has a gap"
    if len({entry.id for entry in entries}) != len(entries):
        yield "two entries have the same name"
    state = fold(entries)
    if state.interrupted or state.unsettled or state.started:
        yield "the log is not closed"
    try:
        assert_valid(state.messages)
    except AssertionError as error:
        yield f"the history is invalid: {error}"


def _acknowledged(evidence: Evidence) -> Iterator[str]:
    """What a process has told as stored is there."""
    there = {f"stored {entry.seq} {entry.id}" for entry in evidence.entries}
    for line in evidence.told:
        if line.startswith("stored ") and line not in there:
            yield f"lost: {line}"


def _requests(evidence: Evidence) -> Iterator[str]:
    """Every request that reached the model was valid, and every process ended or was killed."""
    for line in evidence.told:
        if line.startswith(("INVALID", "TOO SLOW")):
            yield line


def _effects(evidence: Evidence) -> Iterator[str]:
    """None is doubled, and each had an intent, and permission where that is needed, under its own key."""
    intents = {event.idempotency_key: event for event in _of(evidence, ToolStarted)}
    allowed = {event.call_id for event in _of(evidence, PermissionDecided) if event.allow}
    for (name, key), count in Counter(evidence.effects).items():
        if name in ONCE and count > 1:
            yield f"doubled: {name} {key} happened {count} times"
        if key not in intents:
            yield f"no intent: {name} {key}"
        elif name == "pay" and intents[key].call_id not in allowed:
            yield f"nobody has allowed {name} {key}"


def _results(evidence: Evidence) -> Iterator[str]:
    """Each call has one, and it says what has happened."""
    happened = Counter(key.rpartition("/")[2] for _, key in evidence.effects)
    keys: dict[str, set[str]] = {}
    for intent in _of(evidence, ToolStarted):
        keys.setdefault(intent.call_id, set()).add(intent.idempotency_key)
    results = [event.result for event in _of(evidence, ToolFinished)]
    for call_id, count in Counter(result.call_id for result in results).items():
        if count > 1:
            yield f"{call_id} has {count} results"
        if len(keys.get(call_id, ())) > 1:
            yield f"{call_id} was tried under different keys: {keys[call_id]}"
    for result in results:
        yield from _result(result, happened[result.call_id])


def _result(result: ToolResult, happened: int) -> Iterator[str]:
    if result.status is Status.OK and not happened:
        yield f"{result.name} {result.call_id} is ok, and nothing has happened"
    if result.status in {Status.DENIED, Status.CANCELLED_BEFORE_START} and happened:
        yield f"{result.name} {result.call_id} is {result.status}, and it has happened"
    if result.status is Status.UNKNOWN and result.text != INTERRUPTED:
        yield f"{result.name} {result.call_id} is unknown, and does not say what to do: {result.text}"
    if result.name not in ONCE and result.status is not Status.OK:
        yield f"{result.name} {result.call_id} may be repeated, and ended as {result.status}"


def _doubts(evidence: Evidence) -> Iterator[str]:
    """What a kill has left in doubt is said to be unknown, and nothing else is."""
    unknown = {event.call_id for event in _of(evidence, ToolFinished) if event.result.status is Status.UNKNOWN}
    for call_id in unknown - set(evidence.in_doubt):
        yield f"{call_id} is said to be unknown, and there is no doubt about it"
    for call_id in set(evidence.in_doubt) - unknown:
        yield f"{call_id} is in doubt, and the log does not say so"


def _prompts(evidence: Evidence) -> Iterator[str]:
    """Each prompt is there once, and the conversation came to its end."""
    messages = fold(evidence.entries).messages
    said = [message.text for message in messages if message.role == "user"]
    if said != ["go", "again"]:
        yield f"the prompts are {said}"
    if not messages or messages[-1].text != "Fine.":
        yield "the conversation has not come to its end"
    if not evidence.told or evidence.told[-1] != "finished":
        yield "the last process has not finished"


def _of(evidence: Evidence, kind):
    return [entry.event for entry in evidence.entries if isinstance(entry.event, kind)]
