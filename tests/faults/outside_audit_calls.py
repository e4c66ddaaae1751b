"""The part of the outside audit that is about calls: what they did, and what the log says of it.

Above: `outside_audit.py`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from perdure import Status
from perdure._core.log.store import CONFIRMED_SECONDS
from perdure.events import QuestionAnswered, QuestionAsked, ToolFinished, ToolStarted
from tests.faults.evidence import writer_of
from tests.faults.outside_evidence import Evidence
from tests.faults.outside_ledger import Note

ON_THREADS = ("sign",)
"""Tools whose calls a cancel leaves behind, at work."""
WITHOUT_EFFECT = (Status.CANCELLED_BEFORE_START, Status.DENIED)


def _effects(evidence: Evidence) -> Iterator[str]:
    """Nothing begins without an intent, and nothing more often than its kind allows."""
    intents: dict[str, list[ToolStarted]] = defaultdict(list)
    for each in evidence.of_kind(ToolStarted):
        intents[each.idempotency_key].append(each)
    retries = _retries(evidence)
    for key, begins in _by_key(evidence, "begin").items():
        known = intents[key]
        what = f"{begins[0].words} ({key})"
        if not known:
            yield f"{what} began without an intent"
        elif known[0].effect == "at_most_once" and len(begins) > 1:
            yield f"{what} began {len(begins)} times"
        elif known[0].effect == "ask" and len(begins) > 1 + retries[known[0].call_id]:
            yield f"{what} began {len(begins)} times, and a person wanted {retries[known[0].call_id]} more"
        elif len(begins) > len(known):
            yield f"{what} began {len(begins)} times for {len(known)} intents"


def _retries(evidence: Evidence) -> Counter[str]:
    """How often a person has wanted a call to be made again."""
    asked = {
        each.ask_id: each.calls[0]["call_id"] for each in evidence.of_kind(QuestionAsked) if each.about == "settlement"
    }
    answers = [each for each in evidence.of_kind(QuestionAnswered) if each.answer == "retry" and each.ask_id in asked]
    return Counter(asked[each.ask_id] for each in answers)


def _late_effects(evidence: Evidence) -> Iterator[str]:
    """Whoever was replaced begins nothing more, once its lease would have to be confirmed again.

    But for one effect: a process may be stopped between the confirmation and the beginning.
    """
    replaced: list[Note] = []
    late: dict[tuple[int, int], list[Note]] = defaultdict(list)
    for note in evidence.noted("driving", "begin"):
        if note.what == "driving":
            replaced.append(note)
        elif any(each.fence > note.fence and each.at + CONFIRMED_SECONDS < note.at for each in replaced):
            late[note.pid, note.fence].append(note)
    for (pid, fence), begins in late.items():
        if len(begins) > 1:
            yield f"{pid} was replaced (fence {fence}), and began after that: {[each.words for each in begins]}"


def _results(evidence: Evidence) -> Iterator[str]:
    """Each call has one result, and it says what has happened."""
    begun, ended = _by_key(evidence, "begin"), _by_key(evidence, "end")
    intents: dict[str, tuple[str, str, float]] = {}
    for call_id, count in Counter((each.path, each.call_id) for each in evidence.of_kind(ToolFinished)).items():
        if count > 1:
            yield f"{call_id} has {count} results"
    for entry in evidence.entries:
        event = entry.event
        if isinstance(event, ToolStarted):
            intents[event.call_id] = event.idempotency_key, writer_of(entry), entry.at
        elif isinstance(event, ToolFinished):
            key, intended_by, intended_at = intents.get(event.call_id, ("", "", 0.0))
            happened = begun.get(key, begun.get(event.call_id, []))
            what = f"{event.name} {event.call_id}"
            status = event.result.status
            if status in WITHOUT_EFFECT and happened:
                yield f"{what} is {status} ({event.result.text}), and it had begun"
            elif status is Status.OK and event.result.text.startswith("did ") and not ended.get(key):
                yield f"{what} is ok, and nothing has ended"
            elif status is Status.CANCELLED and event.name not in ON_THREADS and intended_by == writer_of(entry):
                fence = max((note.fence for note in happened), default=0)  # what another process did before is told so
                own = [note for note in ended.get(key, ()) if note.fence == fence]
                if any(intended_at <= note.wall <= entry.at for note in own):
                    yield f"{what} is cancelled, and it had come to its end: its result is lost"


def _by_key(evidence: Evidence, what: str) -> dict[str, list[Note]]:
    found: dict[str, list[Note]] = defaultdict(list)
    for note in evidence.noted(what):
        found[note.name].append(note)
    return found


OF_CALLS: Sequence[Callable[[Evidence], Iterator[str]]] = (_effects, _late_effects, _results)
"""What is looked at, each giving what is wrong with it."""
