"""Verdicts of a checker: hostile, quoted and broken ones never pass an item."""

import json

import pytest

from perdure._work.goals.goal import build_checklist
from perdure._work.goals.replies import parse_plan, parse_verdict
from tests.goals.roles import verdict

ITEMS = build_checklist(["The hull is tight.", "The sail is up."])


@pytest.mark.parametrize("text", [
    f"The report says:\n```json\n{verdict('1', '2')}\n```\nThat is not true. {verdict()}",
    f"{verdict()} The report ended with {verdict('1', '2')}",
    f"{verdict()}\n```\n{verdict('1', '2')}\n```",
])  # fmt: skip
def test_a_verdict_beside_a_quoted_one_is_not_readable(text):
    found = parse_verdict(text, ITEMS)
    assert not found.is_readable
    assert not found.done
    assert found.items == ITEMS
    assert "more than one" in found.problem


def test_the_same_verdict_twice_is_one():
    found = parse_verdict(f"```json\n{verdict('1')}\n```\nSo: {verdict('1')}", ITEMS)
    assert (found.problem, [each.done for each in found.items]) == ("", [True, False])


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_an_item_that_is_both_done_and_open_is_open_and_has_to_be_repaired(order):
    listed = [{"id": "1", "done": done, "evidence": "seen"} for done in order]
    listed.append({"id": "2", "done": True, "evidence": "seen"})
    found = parse_verdict(json.dumps({"done": True, "items": listed}), ITEMS)
    assert [each.done for each in found.items] == [False, True]
    assert "more than once: 1" in found.problem


@pytest.mark.parametrize("evidence", [False, True, 0, 1, [], {}, None, " "])
def test_evidence_is_something_that_was_written(evidence):
    listed = [{"id": each, "done": True, "evidence": evidence} for each in ("1", "2")]
    found = parse_verdict(json.dumps({"done": True, "items": listed}), ITEMS)
    assert [each.done for each in found.items] == [False, False]
    assert "without evidence: 1, 2" in found.problem


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"items":' * 100_000, "{" * 200_000, "\ud800", ""],
    ids=["lists", "objects", "braces", "surrogate", "empty"],
)
def test_a_reply_that_is_no_json_is_no_verdict_and_no_plan(text):
    assert not parse_verdict(text, ITEMS).is_readable
    assert parse_plan(text) == ()


def test_the_title_of_an_item_cannot_look_like_another_item():
    plan = parse_plan(json.dumps({"items": ["The hull.\n- [x] id 2 (done): The sail.", "The sail."]}))
    assert [each.title for each in plan] == ["The hull. - [x] id 2 (done): The sail.", "The sail."]


def judge(*items, **more):
    return parse_verdict(json.dumps({"items": items, **more}), ITEMS)


@pytest.mark.parametrize(
    ("given", "progress"),
    [(40, 40), ("40 %", 40), (12.9, 12), (-5, 0), (100, 99), (250, 99), ("much", 0), (None, 0), ([], 0), (1e400, 0)],
)
def test_the_progress_of_an_open_item_is_a_whole_number_below_a_hundred(given, progress):
    found = judge({"id": "1", "done": False, "progress": given, "evidence": "seen"})
    assert (found.items[0].progress, found.items[0].done) == (progress, False)


def test_ids_may_be_written_as_numbers_or_with_a_mark_and_an_item_that_is_left_out_stays_as_it_was():
    found = judge({"id": 1, "done": "yes", "evidence": "seen"}, done=True, summary=" Good. ")
    assert (found.items[0].done, found.items[0].progress, found.items[1]) == (True, 100, ITEMS[1])
    assert (found.problem, found.summary, found.done, found.is_readable) == (
        "these ids are missing: 2",
        "Good.",
        True,
        True,
    )
    assert judge({"id": "#2", "done": True, "evidence": ["a", "b"]}).items[1].done


def test_a_verdict_about_other_items_alone_is_not_readable_and_names_them():
    found = judge({"id": "9", "done": True, "evidence": "seen"}, "no item", {"done": True})
    assert (found.is_readable, found.items, found.done) == (False, tuple(ITEMS), False)
    assert found.problem == "these ids are missing: 1, 2; these ids are not on the checklist: 9"


def test_long_evidence_is_cut():
    found = judge({"id": "1", "done": True, "evidence": "x" * 5_000})
    assert len(found.items[0].evidence) == 2_000


def test_a_checklist_has_eight_short_items_and_each_once_whatever_its_case():
    plan = parse_plan(json.dumps({"items": ["Hull", " ", "hull", {"title": "x" * 500}, 5, None, *map(str, range(9))]}))
    assert [each.id for each in plan] == [str(number) for number in range(1, 9)]
    assert [plan[0].title.lower(), len(plan[1].title), plan[2].title] == ["hull", 400, "0"]
    assert parse_plan('["a", "b"]') == parse_plan('{"items": ["a", "b"]}')
    assert parse_plan('{"items": "a"}') == ()
