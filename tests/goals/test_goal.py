"""A goal and its checklist: the least and the most of each limit, and what becomes of titles."""

from typing import Any

import pytest

from perdure import ConfigError
from perdure._work.goals.goal import build_checklist
from perdure.background import ChecklistItem, Goal


@pytest.mark.parametrize(
    ("name", "least", "too_little"),
    [
        ("max_iterations", 1, 0),
        ("no_progress_limit", 1, 0),
        ("token_budget", 1, 0),
        ("max_cost_usd", 0.000_001, 0),
        ("max_seconds", 0.001, 0.0),
        ("objective", "x", " "),
        ("items", (), ("",)),
        ("items", ("x",) * 8, ("x",) * 9),
    ],
)
def test_each_limit_of_a_goal_has_a_least_value(name: str, least: Any, too_little: Any) -> None:
    options = {"objective": "Do it.", name: least}
    assert getattr(Goal(**options), name) == least
    with pytest.raises(ConfigError, match=rf"^Goal\({name}="):
        Goal(**{**options, name: too_little})


@pytest.mark.parametrize("value", [-1, float("inf"), float("nan"), True, "1"])
@pytest.mark.parametrize("name", ["max_cost_usd", "max_seconds"])
def test_an_amount_is_a_number_above_zero(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError) as raised:
        Goal("Do it.", **options)
    assert str(raised.value) == f"Goal({name}={value!r}): give a number above zero, or None for no limit"


def test_a_checklist_has_each_title_once_on_one_line_and_not_too_long() -> None:
    titles = [" The hull\nis  tight. ", "", "  ", "the hull is tight.", "y" * 401, 7]
    assert build_checklist(titles) == (
        ChecklistItem("1", "The hull is tight."),
        ChecklistItem("2", "y" * 400),
        ChecklistItem("3", "7"),
    )


def test_a_checklist_has_no_more_items_than_a_plan_may_have() -> None:
    assert [each.id for each in build_checklist(range(9))] == [str(number) for number in range(1, 9)]
