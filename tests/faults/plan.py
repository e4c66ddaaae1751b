"""Conversations to be killed in: what is asked, what the model answers, all of it drawn from a seed.

Every process that drives a conversation draws the same plan, and so knows what comes next from the log alone.
"""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure import Message
from perdure.models import Request
from perdure.testing import call, calls

ONCE = ("pay", "mail", "sign")
"""Tools whose effect may happen once at most."""
REPEATABLE = ("put", "look")
"""Tools that may run again after a crash."""
NEEDS_PERMISSION = "pay"
FORBIDDEN = "no-"
"""What a call begins with that nobody allows."""
LAST_PROMPT = "finally"
LAST_WISH = "last"
LAST_ANSWER = "Fine."
STEERING = "by the way"
PROMPTS_ONLY = "p"
"""A session of this name has no calls without a model: nobody can say whether such a one was made before."""

_MOST_CALLS = 8


class Wish(NamedTuple):
    """One call that the model makes."""

    tool: str
    what: str
    """Its one argument; no other call of the conversation has the same."""


class Item(NamedTuple):
    """One thing to do: a prompt that is answered after some turns, or a call without a model."""

    name: str
    turns: Sequence[Sequence[Wish]]
    answer: str = "Done."
    is_call: bool = False
    steered: bool = False
    """Whether the model is told something more while it is at it."""


def plan(seed: str, session_id: str) -> list[Item]:
    """What is to be done in a session, in order; at the end a prompt that shows that it is still of use."""
    chance = random.Random(f"{seed} {session_id}")
    calls_alone = 0.0 if session_id == PROMPTS_ONLY else 0.2
    items = [_item(chance, f"task-{place}", calls_alone) for place in range(chance.randint(2, 4))]
    return [*items, Item(LAST_PROMPT, [[Wish("pay", LAST_WISH)]], LAST_ANSWER)]


def _item(chance: random.Random, name: str, calls_alone: float) -> Item:
    if chance.random() < calls_alone:
        return Item(name, [[_wish(chance, f"{name}/alone")]], is_call=True)
    turns = [_turn(chance, f"{name}/{place}") for place in range(chance.randint(1, 3))]
    return Item(name, turns, steered=chance.random() < 0.3)


def _turn(chance: random.Random, name: str) -> list[Wish]:
    """Often one call, sometimes as many as eight."""
    count = chance.choice([1, 1, 2, 3, 4, chance.randint(5, _MOST_CALLS)])
    return [_wish(chance, f"{name}/{place}") for place in range(count)]


def _wish(chance: random.Random, what: str) -> Wish:
    tool = chance.choice(["pay", "pay", "mail", "sign", "put", "look"])
    refused = tool == NEEDS_PERMISSION and chance.random() < 0.15
    return Wish(tool, f"{FORBIDDEN}{what}" if refused else what)


def reply_to(request: Request, items: Sequence[Item]) -> Any:
    """What the model says now, wherever the conversation stands."""
    prompts = {item.name: item for item in items if not item.is_call}
    turn = 0
    for message in reversed(request.messages):
        if message.role == "user" and message.text in prompts:
            item = prompts[message.text]
            if turn == len(item.turns):
                return item.answer
            return calls(*[call(wish.tool, what=wish.what) for wish in item.turns[turn]])
        turn += message.role == "tool"
    raise AssertionError("the conversation has no prompt")


def prompts_of(messages: Sequence[Message]) -> list[str]:
    """What the person has asked for, without the steering."""
    return [message.text for message in messages if message.role == "user" and not message.text.startswith(STEERING)]
