"""Holds the logs of the outside search against its ledger. Above: `outside.py`. Below: the store, `outside_ledger.py`.

It lists what is wrong instead of asserting it, so that a test can also demand that a bug is found.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

import msgspec

from perdure.events import (
    Entry,
    InboxAdded,
    InboxResolved,
    ModelRequested,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunStarted,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
)
from perdure.stores import Store
from tests.faults.evidence import writer_of
from tests.faults.outside_audit_calls import OF_CALLS
from tests.faults.outside_evidence import Evidence
from tests.faults.outside_ledger import Ledger, Note
from tests.faults.outside_plan import LAST_ANSWER, PROMPT
from tests.transcript import assert_valid

_ENDS = ("done", "waiting", "cancelled", "parked crash_loop", "failed interrupted")
"""How runs may end."""


async def audit(store: Store, ledger: Ledger) -> list[str]:
    """Return what is wrong; nothing when every promise was kept."""
    names = [info.session_id for info in await store.list(limit=1000)]
    found = {name: (await store.read(name), await store.posts(name)) for name in names}
    notes = _addressed(ledger.read(), {name: entries for name, (entries, _) in found.items()})
    wrong = [f"{note.session}: {note.words}" for note in notes if note.what == "WRONG"]
    wrong += [f"{name} is lost" for name in {note.session for note in notes if note.what == "accepted"} - found.keys()]
    everything = [
        Evidence(name, entries, posts, [note for note in notes if note.session == name])
        for name, (entries, posts) in found.items()
    ]
    for check in (*OF_SESSIONS, *OF_CALLS):
        wrong += [f"{evidence.name}: {each}" for evidence in everything for each in check(evidence)]
    return list(dict.fromkeys([*wrong, *_results_told(everything)]))


def _addressed(notes: Sequence[Note], logs: Mapping[str, Sequence[Entry]]) -> list[Note]:
    """Return the notes, with answers under the session that asked: one may answer for those in the background."""
    asked = {
        entry.event.ask_id: name
        for name, entries in logs.items()
        for entry in entries
        if isinstance(entry.event, QuestionAsked)
    }
    return [msgspec.structs.replace(note, session=asked.get(note.name, note.session)) for note in notes]


# -- the log -----------------------------------------------------------------------------------------------------------


def _log(evidence: Evidence) -> Iterator[str]:
    """It has no gap, names nothing twice, each writer has one stretch of it, and every conversation in it is valid."""
    entries = evidence.entries
    if [entry.seq for entry in entries] != [*range(1, len(entries) + 1)]:
        yield "the log has a gap"
    if len({entry.id for entry in entries}) != len(entries):
        yield "two entries have the same name"
    gone, last = set[str](), ""
    for entry in entries:
        writer = writer_of(entry)
        if writer and writer in gone:
            yield f"{writer} has written entry {entry.seq} after {last} had taken over"
        if writer and writer != last:
            gone.add(last)
            last = writer
    state = evidence.state
    for each in (state, *state.children.values()):
        try:
            assert_valid(each.messages)
        except AssertionError as error:
            yield f"the history of {each.path or 'the chief'} is invalid: {error}"
        if each.is_interrupted or each.unsettled_calls or each.started_calls:
            yield f"{each.path or 'the chief'} is not at its end"


def _runs(evidence: Evidence) -> Iterator[str]:
    """Each run begins once and ends once, as runs may end; so do the tasks of others."""
    for kind in (RunStarted, RunEnded):
        for (run_id, path), count in Counter((each.run_id, each.path) for each in evidence.of_kind(kind)).items():
            if count > 1:
                yield f"{kind.__name__} of {run_id} {path} is there {count} times"
    started = {(each.run_id, each.path) for each in evidence.of_kind(RunStarted)}
    ended = {(each.run_id, each.path) for each in evidence.of_kind(RunEnded)}
    if started != ended:
        yield f"runs began and did not end: {started - ended}, or ended and did not begin: {ended - started}"
    for note in evidence.noted("ended"):
        if not note.words.startswith(_ENDS):
            yield f"a run ended as {note.words}"
    given = Counter((each.path, each.call_id) for each in evidence.of_kind(SubagentStarted))
    done = Counter((each.path, each.call_id) for each in evidence.of_kind(SubagentFinished))
    if given != done or any(count > 1 for count in given.values()):
        yield f"tasks were given and did not end once: {given - done}, {done - given}"


def _end(evidence: Evidence) -> Iterator[str]:
    """The last prompt was answered, and nothing waits."""
    if evidence.is_child:
        return
    messages = evidence.state.messages
    if not messages or messages[-1].text != LAST_ANSWER:
        yield "the last prompt has no answer"
    if evidence.posts:
        yield f"posts wait: {[post.id for post in evidence.posts]}"


# -- what was acknowledged ---------------------------------------------------------------------------------------------


def _prompts(evidence: Evidence) -> Iterator[str]:
    """Each accepted prompt is there once, and its words are in the conversation once."""
    if evidence.is_child:
        return
    begun = Counter(each.input_id for each in evidence.of_kind(RunStarted) if not each.path and each.input_id)
    said = Counter(
        message.text
        for message in evidence.state.messages
        if message.role == "user" and message.text.startswith(PROMPT)
    )
    for name in {note.name for note in evidence.noted("accepted")} | begun.keys():
        if (begun[name], said[name]) != (1, 1):
            yield f"prompt {name} was begun {begun[name]} times, and is there {said[name]} times"
    if said.keys() - begun.keys():
        yield f"prompts that nobody gave: {said.keys() - begun.keys()}"


def _messages(evidence: Evidence) -> Iterator[str]:
    """Each message that was posted is there once, in the order in which one person said them."""
    places = {entry.id: entry.seq for entry in evidence.entries}
    said = Counter(message.text for message in evidence.state.messages if message.role == "user")
    in_order: dict[tuple[str, str], list[int]] = defaultdict(list)
    acknowledged: Counter[str] = Counter()
    for note in evidence.noted("posted"):
        is_new, _, words = note.words.partition(" ")
        acknowledged[note.name] += is_new == "True"
        if acknowledged[note.name] > 1:
            yield f"post {note.name} was taken as new twice"
        if note.name not in places or said[words] != 1:
            yield f"{words!r} was acknowledged, and is there {said[words]} times"
        elif is_new == "True":
            _, _, _, kind, whose, _ = words.split(" ")
            in_order[kind, whose].append(places[note.name])
    for (kind, whose), seqs in in_order.items():
        if seqs != sorted(seqs):
            yield f"what {whose} said as {kind} came in another order: {seqs}"
    for words, count in said.items():
        if words.startswith("by the way") and count > 1:
            yield f"{words!r} is there {count} times"


def _answers(evidence: Evidence) -> Iterator[str]:
    """An answer that was taken is the one that counts; or its run was ended by somebody in the same moment."""
    taken: dict[str, float] = {}
    for note in evidence.noted("answered"):
        is_taken, began, answer = note.words.split(" ", 2)
        if is_taken == "True":
            if note.name in taken:
                yield f"two answers to {note.name} were taken, the second is {answer!r}"
            taken[note.name] = float(began)
    answered = {each.ask_id for each in evidence.of_kind(QuestionAnswered)}
    runs = {each.ask_id: each.run_id for each in evidence.of_kind(QuestionAsked)}
    over = {each.run_id for each in evidence.of_kind(RunEnded)}
    seen_over = {note.name: note.at for note in reversed(evidence.noted("over"))}
    for ask_id, began_at in taken.items():
        run_id = runs.get(ask_id, "")
        if ask_id not in answered and (run_id not in over or seen_over.get(run_id, inf) < began_at):
            yield f"an answer to {ask_id} was taken, and is lost"


def _inbox(evidence: Evidence) -> Iterator[str]:
    """Each result that is in the log is there once."""
    items = {each.item_id for each in evidence.of_kind(InboxAdded)}
    resolved = Counter(each.item_id for each in evidence.of_kind(InboxResolved))
    for item_id, count in resolved.items():
        if count > 1 or item_id not in items:
            yield f"item {item_id} was resolved {count} times"


def _results_told(everything: Sequence[Evidence]) -> Iterator[str]:
    """Each result from outside that was taken is told once: to whoever waited, or to whom that one worked for."""
    states = [each.state for each in everything]
    said = [message.text for top in states for each in (top, *top.children.values()) for message in each.messages]
    taken: Counter[str] = Counter()
    for note in [note for each in everything for note in each.noted("resolved")]:
        is_taken, _, response = note.words.partition(" ")
        taken[note.name] += is_taken == "True"
        if taken[note.name] > 1:
            yield f"two results of {note.name} were taken"
        told = sum(response in text for text in said)
        if is_taken == "True" and told != 1:
            yield f"{note.session}: the result of {note.name} was taken, and a model was told {told} times"


# -- requests ----------------------------------------------------------------------------------------------------------


def _requests(evidence: Evidence) -> Iterator[str]:
    """Each request was valid, was in the log before it was sent, and told every result as the log has it."""
    asked = evidence.noted("request")
    counted = len(evidence.of_kind(ModelRequested))
    if counted < len(asked):
        yield f"the model was asked {len(asked)} times, and the log knows of {counted}"
    results = {each.call_id: each.result.text for each in evidence.of_kind(ToolFinished)}
    for note in asked:
        if note.words.startswith("INVALID"):
            yield note.words
            continue
        for call_id, text in _told_results(note.words):
            if call_id not in results or not text.endswith(results[call_id]):  # its status may stand in front
                yield f"the model was told {text!r} of {call_id}, and the log has {results.get(call_id)!r}"


def _told_results(body: str) -> Iterator[tuple[str, str]]:
    for message in msgspec.json.decode(body)["messages"]:
        if message["role"] == "tool":
            content = message["content"]
            text = content if isinstance(content, str) else "".join(part["text"] for part in content)
            yield message["tool_call_id"], text


OF_SESSIONS: Sequence[Callable[[Evidence], Iterator[str]]] = (
    *(_log, _runs, _end),
    *(_prompts, _messages, _answers, _inbox, _requests),
)
"""What is looked at, each giving what is wrong with it."""
