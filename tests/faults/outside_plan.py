"""What the models of the outside search say: drawn from a seed, the prompt and the turn, so that any process goes on.

Above: `outside_world.py`. A prompt begins with `task-`; what else a user says does not change the plan.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from perdure import Message

PROMPT = "task-"
LAST_PROMPT = "task-last"
ANSWER = "Done."
LAST_ANSWER = "Fine."
VALUE = '{"value": 7}'
"""The answer where a value is asked for."""

CHIEF = (*("look", "put", "mail", "mail", "sign", "settle", "fetch"), *("pay", "book", "order", "scout", "delegate"))
"""What the first agent calls; some more often."""
SCOUT = ("look", "put", "mail", "settle", "book", "order")
"""What those call that work for it."""

_MOST_TURNS = 3
_MOST_CALLS = 8


class Wish(NamedTuple):
    """One call that the model makes."""

    tool: str
    what: str
    """Its argument: no other call of the prompt has the same."""


def plan(seed: str, prompt: str, *, is_chief: bool) -> list[list[Wish]]:
    """Return the calls of each turn that answers a prompt."""
    chance = random.Random(f"{seed} {prompt} {is_chief}")
    if prompt == LAST_PROMPT:
        return [[Wish("mail", f"{prompt}.0.0")]]
    turns = chance.randint(1, _MOST_TURNS if is_chief else 2)
    return [_turn(chance, f"{prompt}.{turn}", CHIEF if is_chief else SCOUT) for turn in range(turns)]


def _turn(chance: random.Random, name: str, tools: Sequence[str]) -> list[Wish]:
    """One call, several of a mixed kind, or many that end at the same moment."""
    count = chance.choice([1, 1, 2, 3, 4, chance.randint(5, _MOST_CALLS)])
    chosen = [chance.choice(tools) for _ in range(count)]
    if chance.random() < 0.25:
        chosen = [chance.choice(("mail", "settle", "put"))] * max(count, 3)
    return [Wish(tool, f"{name}.{place}") for place, tool in enumerate(chosen)]


def find_turn(messages: Sequence[Message]) -> tuple[str, int]:
    """Return the prompt that is being answered, and how many of its turns are over."""
    turns = 0
    for message in reversed(messages):
        if message.role == "user" and message.text.startswith(PROMPT):
            return message.text, turns
        turns += message.role == "tool"
    return "", turns
