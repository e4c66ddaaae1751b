"""Holds the log of a session against outside evidence: the ledger of effects, and what the processes told.

It lists what is wrong instead of asserting it, so that a test can also demand that a bug is found. The invariants:

    I1  what was acknowledged is in the log            I5  every request that reached the model was valid
    I2  the log has no gap, and nothing is there twice I6  nobody writes after somebody else has
    I3  each intent has one effect at most             I7  the session can be used at once
    I4  a result says what has happened                I9  no effect without an earlier permission for its arguments
"""

import os
from collections.abc import Iterator

from perdure._core.log.repair import ENDING_CRASH_LOOP, ENDING_PROCESS_DIED
from perdure.engines import fold_entries
from perdure.events import RunEnded
from tests.faults.auditor_calls import OF_CALLS
from tests.faults.children import checksum
from tests.faults.evidence import Evidence, writer_of
from tests.faults.plan import (
    LAST_ANSWER,
    LAST_PROMPT,
    STEERING,
    prompts_of,
)
from tests.transcript import assert_valid

USABLE_SECONDS = 5.0
"""A session answers a new prompt within this time after a crash."""
OWN_LOAD = 4
"""Processes that go on at the same time because of us."""


_ENDS = frozenset(
    [
        f"ended {end}"
        for end in ("done", "ok", "denied", " ".join(ENDING_CRASH_LOOP[:2]), " ".join(ENDING_PROCESS_DIED[:2]))
    ]
)
"""How runs and calls may end; the last when somebody else has closed them."""


def violations(evidence: Evidence) -> list[str]:
    """What is wrong; nothing when every promise was kept."""
    of_log = (_outcomes, _log, _writers, _fenced, _acknowledged, _requests, _plan, _usable)
    return [violation for check in (*of_log, *OF_CALLS) for violation in check(evidence)]


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
    state = fold_entries(entries)
    if state.is_interrupted or state.unsettled_calls or state.started_calls:
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
        writer = writer_of(entry)
        if not writer:  # a post that was taken has the name of the post
            continue
        if writer in gone:
            yield f"I6: {writer} has written entry {entry.seq} after {last} had taken over"
        if writer != last:
            gone.add(last)
        last = writer


def _fenced(evidence: Evidence) -> Iterator[str]:
    """I6: whoever lost the session in the middle of a run, and lives, has noticed."""
    last = {writer: entry for entry in evidence.entries if (writer := writer_of(entry))}
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
    messages = fold_entries(evidence.entries).messages
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


def _plan(evidence: Evidence) -> Iterator[str]:
    """I1: each prompt is there once and in order, and the conversation came to its end."""
    messages = fold_entries(evidence.entries).messages
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
    if evidence.seconds > _patience():
        yield f"I7: the session could be used only after {evidence.seconds:.1f} s"


def _patience() -> float:
    """Longer where others want the machine more than we do."""
    others = os.getloadavg()[0] - OWN_LOAD
    return USABLE_SECONDS * max(1.0, others / (os.cpu_count() or 1))
