"""Parse a checker's verdict and a planner's plan from their replies; ask the model again if one cannot be parsed."""

from collections.abc import Sequence
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.json_reply import is_true, list_json_objects, list_json_values
from perdure._core.run.run import Run
from perdure._core.run.spec import Accepted, OutputValidator, Retry
from perdure._core.values.jsonable import to_text
from perdure._core.values.message import Message

from .goal import WHOLE, ChecklistItem, build_checklist

MOST_REPAIRS: Final = 1
"""How often a planner or a checker may repair its reply."""
REPAIR_ORIGIN: Final = "goal_repair"
MOST_EVIDENCE_CHARACTERS: Final = 2_000
"""Characters of the evidence of an item that are kept."""
MIN_ITEMS: Final = 2
"""Items that a plan should have."""


class ChecklistVerdict(Struct, frozen=True):
    """A checker's verdict on a goal: the updated checklist, and the problem with the reply if it was malformed."""

    items: tuple[ChecklistItem, ...]
    done: bool = False
    summary: str = ""
    problem: str = ""
    """What has to be repaired; empty if the reply has the right form."""
    is_readable: bool = True
    """False if the reply has no verdict at all: then the checklist is the old one."""


def parse_verdict(text: str, items: Sequence[ChecklistItem]) -> ChecklistVerdict:
    """Parse the verdict on these checklist items in the reply of a checker agent.

    Items are matched by their ids, and their titles are never changed. An item that the reply leaves out stays as it
    was. An item is done only if there is evidence for it, and it is nowhere called open. A reply with different
    verdicts is not readable: one of them may be a quote of the report that is judged.
    """
    verdicts = [each for each in list_json_objects(text) if isinstance(each.get("items"), list)]
    if not verdicts or any(each != verdicts[0] for each in verdicts):
        count = "more than one" if verdicts else "no"
        problem = f'the reply has {count} JSON object with "items"'
        return ChecklistVerdict(tuple(items), problem=problem, is_readable=False)
    found = verdicts[0]
    judged, repeated = _collect_judgements(found["items"])
    known = {each.id for each in items}
    changed = tuple([_judge_item(each, judged.get(each.id)) for each in items])
    problems: list[str] = []
    if missing := [each.id for each in items if each.id not in judged]:
        problems.append(f"these ids are missing: {', '.join(missing)}")
    if strange := sorted(set(judged) - known):
        problems.append(f"these ids are not on the checklist: {', '.join(strange)[:200]}")
    unproven = [
        each.id for each in items if is_true(judged.get(each.id, {}).get("done")) and not _get_evidence(judged[each.id])
    ]
    if unproven:
        problems.append(f"these items are done without evidence: {', '.join(unproven)}")
    if repeated:
        problems.append(f"these ids are there more than once: {', '.join(repeated)[:200]}")
    summary = to_text(found.get("summary", "")).strip()
    return ChecklistVerdict(
        changed, is_true(found.get("done")), summary, "; ".join(problems), bool(set(judged) & known)
    )


def make_verdict_validator(items: Sequence[ChecklistItem]) -> OutputValidator:
    """Make an output validator that asks the checker agent once to repair a verdict whose form is wrong."""

    def accept(run: Run, reply: Message) -> Accepted | Retry:
        problem = parse_verdict(reply.text, items).problem
        if not problem or _count_repairs(run) >= MOST_REPAIRS:
            return Accepted()
        ids = ", ".join([each.id for each in items])
        return Retry(
            f"Your verdict cannot be used: {problem}. Answer with the JSON object alone, with each of the ids {ids} "
            "once, unchanged.",
            REPAIR_ORIGIN,
        )

    return accept


def parse_plan(text: str) -> tuple[ChecklistItem, ...]:
    """Parse the checklist in the reply of a planner agent; empty if it has none."""
    values = list_json_values(text)
    listed: Any = values[0] if values else ()
    if isinstance(listed, dict):
        listed = cast("dict[str, Any]", listed).get("items", ())
    if not isinstance(listed, list):
        return ()
    given = cast("Sequence[Any]", listed)
    return build_checklist([title for each in given if (title := _get_title(each))])


def validate_plan(run: Run, reply: Message) -> Accepted | Retry:
    """Output validator: accept a plan with enough checklist items; else ask the planner agent once to repair it."""
    if len(parse_plan(reply.text)) >= MIN_ITEMS or _count_repairs(run) >= MOST_REPAIRS:
        return Accepted()
    return Retry(
        'Your plan cannot be used. Answer with this JSON object alone: {"items": ["…", "…"]}, with 2 to 8 different '
        "items, each of which can be verified independently.",
        REPAIR_ORIGIN,
    )


def _count_repairs(run: Run) -> int:
    """Return how often the agent was asked to repair its reply; counted in the messages, so that crashes add none."""
    return sum([each.origin == REPAIR_ORIGIN for each in run.messages[run.state.first_message_index :]])


def _get_title(value: Any) -> str:
    """Return the title of a planned item, which is text, or an object with a title; empty if it is neither."""
    title = cast("dict[str, Any]", value).get("title") if isinstance(value, dict) else value
    return title if isinstance(title, str) else ""


def _clean_id(value: Any) -> str:
    """Return the id of an item as the checklist has it, also of one that was written as `#1` or as a number."""
    return to_text(value).strip().lstrip("#")


def _collect_judgements(listed: Sequence[Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the judgement of each id, and the ids that occur more than once: of those, one that is open counts."""
    judged: dict[str, Any] = {}
    repeated: list[str] = []
    for each in listed:
        if _is_item(each):
            item_id = _clean_id(each["id"])
            if item_id in judged:
                repeated.append(item_id)
            if item_id not in judged or not is_true(each.get("done")):
                judged[item_id] = each
    return judged, repeated


def _is_item(value: Any) -> bool:
    return isinstance(value, dict) and "id" in value


def _judge_item(item: ChecklistItem, judged: Any) -> ChecklistItem:
    """Return an item with the judgement of the checker; its id and title stay."""
    if judged is None:
        return item
    evidence = _get_evidence(judged)
    done = is_true(judged.get("done")) and bool(evidence)
    progress = WHOLE if done else min(_parse_percent(judged.get("progress")), WHOLE - 1)
    return replace(item, done=done, evidence=evidence, progress=progress)


def _get_evidence(judged: Any) -> str:
    given = judged.get("evidence")
    is_text = bool(given) and isinstance(given, (str, list, dict))  # `true` or a number is nothing that was seen
    return to_text(given).strip()[:MOST_EVIDENCE_CHARACTERS] if is_text else ""


def _parse_percent(value: Any) -> int:
    """Return a number from 0 to 100, also of one that was written as "40 %"; 0 if it is none."""
    try:
        number = float(value.strip().rstrip("%")) if isinstance(value, str) else float(value or 0)
        return max(0, min(WHOLE, int(number)))
    except (TypeError, ValueError, OverflowError):
        return 0
