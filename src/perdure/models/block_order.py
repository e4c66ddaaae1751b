"""The order of messages that are made of blocks: who speaks when, and that every call is answered by what follows it.

Above: the lints of wires whose messages hold blocks (Anthropic, Bedrock). Below: `memo.py`. What a block is, and what
may be in one, only the wire itself knows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from .memo import BrokenRule, Item


class Reading(NamedTuple):
    """What a message holds, as far as the order goes."""

    blocks: Sequence[Mapping[str, Any]]
    calls: Sequence[str]
    """The ids of calls that the next message has to answer."""
    results: Sequence[str]
    """The ids of calls that it answers."""


class State(Struct, frozen=True):
    """Where the rules stand after an item."""

    place: int = 0
    """How many items there were."""
    open_calls: frozenset[str] = frozenset()
    """Those of the last item, which the next one has to answer."""


class BlockOrder:
    """The rules about the order of items."""

    def __init__(
        self,
        read: Callable[[Item], Reading],
        check: Callable[[int, Mapping[str, Any]], None],
        *,
        in_the_middle: bool = False,
    ) -> None:
        """`check` refuses a block that must not stand anywhere; `in_the_middle` is for a conversation in front of which
        something is going to be put.
        """
        self._read = read
        self._check = check
        self._start = State(place=1) if in_the_middle else State()

    def begin(self) -> State:
        """Before the first item."""
        return self._start

    def step(self, state: State, item: Item) -> State:
        """After one more item."""
        place, role = state.place, item.get("role")
        if role not in {"user", "assistant"}:
            raise broken(place, f"the role {role!r}; there are 'user' and 'assistant'")
        if place == 0 and role == "assistant":
            raise broken(place, "the model speaks first; a conversation begins with the user")
        blocks, calls, results = self._read(item)
        if not blocks:
            raise broken(place, f"a message of the {role} with nothing in it")
        _check_results(place, state.open_calls, results)
        if role == "user" and calls:
            raise broken(place, "a call in a message of the user; calls are the model's")
        for block in blocks:
            self._check(place, block)
        return State(place + 1, frozenset(calls))

    def end(self, state: State) -> None:
        """After the last item."""
        if state.place == self._start.place:
            raise broken(0, "there is nothing in the conversation; say something first")
        if state.open_calls:
            raise broken(state.place, f"the calls {sorted(state.open_calls)} have no results; each needs one")


def broken(place: int, what: str) -> BrokenRule:
    """A rule that the message at this place breaks."""
    return BrokenRule(f"messages[{place}]: {what}. The request was not sent")


def _check_results(place: int, calls: frozenset[str], results: Sequence[str]) -> None:
    if calls == frozenset(results) and len(results) == len(calls):
        return
    if missing := calls - frozenset(results):
        raise broken(place, f"the calls {sorted(missing)} are not answered by the message that follows them")
    if strange := frozenset(results) - calls:
        raise broken(place, f"the results {sorted(strange)} belong to no call of the message before")
    raise broken(place, f"a call is answered twice, among {sorted(results)}")
