"""`Goal`: an objective with its limits, and the items of its checklist."""

import math
from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import Struct

from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta

GoalStatus: TypeAlias = Literal[
    "running", "paused", "achieved", "blocked", "budget_limited", "max_iterations", "errored"
]
"""`running`: being pursued. `paused`: stopped, cut off, or waiting for an answer. `achieved`: every item is done, with
evidence. `blocked`: several iterations brought no progress. `budget_limited`, `max_iterations`: a limit was reached.
`errored`: an agent failed. All but `achieved` can be resumed.
"""

MAX_ITERATIONS: Final = 10
NO_PROGRESS_LIMIT: Final = 2
MOST_ITEMS: Final = 8
"""Items that a plan may have."""
MOST_TITLE_CHARACTERS: Final = 400
"""Characters of an item's title that are kept."""
WHOLE: Final = 100
"""Progress of an item that is done, in percent."""


class Goal(Struct, frozen=True, metaclass=StrictOptionsMeta):
    """An objective that agents pursue until a checker finds every item of its checklist done, and its limits."""

    objective: str
    """The state of affairs that is wanted, in words that a checker can verify."""
    items: tuple[str, ...] = ()
    """The checklist; without one, a model plans it."""
    max_iterations: int = MAX_ITERATIONS
    """Iterations of maker and checker, counted anew when the goal is resumed."""
    no_progress_limit: int = NO_PROGRESS_LIMIT
    """Iterations in a row without progress after which the goal is `blocked`."""
    token_budget: int | None = None
    """Tokens of all agents together, over all processes; `None` for any number."""
    max_cost_usd: float | None = None
    """Dollars of all agents together; `None` for any amount. It needs models whose prices are known."""
    max_seconds: float | None = None
    """Time in which the goal is pursued, without pauses; `None` for any time."""

    def __post_init__(self) -> None:
        checks.require_text("Goal", "objective", self.objective, non_empty=True)
        checks.require_int("Goal", "max_iterations", self.max_iterations, 1)
        checks.require_int("Goal", "no_progress_limit", self.no_progress_limit, 1)
        if self.token_budget is not None:
            checks.require_int("Goal", "token_budget", self.token_budget, 1)
        for name in ("max_cost_usd", "max_seconds"):
            _check_amount(name, getattr(self, name))
        if not isinstance(self.items, (tuple, list)) or len(self.items) > MOST_ITEMS:
            checks.raise_config_error("Goal", "items", self.items, f"give a list of at most {MOST_ITEMS} texts")
        for item in self.items:
            checks.require_text("Goal", "items", item, non_empty=True)


class ChecklistItem(Struct, frozen=True, omit_defaults=True):
    """An item of a goal's checklist. Its id and its title never change; only a checker changes the rest."""

    id: str
    title: str
    done: bool = False
    evidence: str = ""
    """What the checker saw; an item without evidence is not done."""
    progress: int = 0
    """Progress in percent, as the checker estimates it; 100 if it is done."""


def build_checklist(titles: Any) -> tuple[ChecklistItem, ...]:
    """Build a checklist from titles: ids from 1 on, without blank and repeated titles, and no more items than allowed.

    A title is one line: with line breaks, it could look like other items of the checklist.
    """
    shortened = [" ".join(str(each).split())[:MOST_TITLE_CHARACTERS] for each in titles]
    unique = {each.casefold(): each for each in reversed(shortened) if each}
    kept = [each for each in dict.fromkeys(shortened) if each and unique[each.casefold()] == each]
    return tuple([ChecklistItem(str(number), title) for number, title in enumerate(kept[:MOST_ITEMS], 1)])


def _check_amount(name: str, value: object) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 < cast("float", value) < math.inf):
        checks.raise_config_error("Goal", name, value, "give a number above zero, or None for no limit")
