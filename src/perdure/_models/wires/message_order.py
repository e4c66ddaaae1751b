"""Check the order of messages (roles alternate, results follow their calls), and the filler that keeps it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from perdure._core.values.message import user
from perdure._models.endpoint.memo import Item, ProviderRuleError

CONTINUE_MESSAGE = user("Continue.")
"""User message that is sent between two assistant messages. It is no part of the conversation."""


class MessageBlocks(NamedTuple):
    """Content blocks of one message, and the ids of its tool calls and tool results."""

    blocks: Sequence[Mapping[str, Any]]
    calls: Sequence[str]
    """Ids of tool calls that the next message has to answer."""
    results: Sequence[str]
    """Ids of tool calls that this message answers."""


class MessageOrderState(Struct, frozen=True):
    """State of the order check after a message: number of messages, and tool calls without a result."""

    place: int = 0
    """Number of items so far."""
    open_calls: frozenset[str] = frozenset()
    """Tool calls of the last item, which the next one has to answer."""


class MessageOrderChecker:
    """Rules of Anthropic and Bedrock about the order of messages, checked while a request is encoded."""

    def __init__(
        self,
        read: Callable[[Item], MessageBlocks],
        check: Callable[[int, Mapping[str, Any]], None],
        *,
        is_continuation: bool = False,
    ) -> None:
        """Set up the rules: `check` raises for a block that is never valid; with `is_continuation`, earlier messages
        exist.
        """
        self._read = read
        self._check = check
        self._start = MessageOrderState(place=1) if is_continuation else MessageOrderState()

    def begin(self) -> MessageOrderState:
        """Return the state before the first message."""
        return self._start

    def step(self, state: MessageOrderState, item: Item) -> MessageOrderState:
        """Return the state after one more message. Raises `ProviderRuleError` if the message is not allowed there."""
        place, role = state.place, item.get("role")
        if role not in {"user", "assistant"}:
            raise build_order_error(place, f"the role {role!r} is unknown; use 'user' or 'assistant'")
        if place == 0 and role == "assistant":
            raise build_order_error(place, "the first message is the assistant's; a conversation starts with the user")
        blocks, calls, results = self._read(item)
        if not blocks:
            raise build_order_error(place, f"an empty message of the {role}")
        _check_results(place, state.open_calls, results)
        if role == "user" and calls:
            raise build_order_error(place, "a tool call in a user message; only the assistant makes calls")
        for block in blocks:
            self._check(place, block)
        return MessageOrderState(place + 1, frozenset(calls))

    def end(self, state: MessageOrderState) -> None:
        """Raise `ProviderRuleError` if there are no messages, or tool calls without results."""
        if state.place == self._start.place:
            raise build_order_error(0, "there is nothing in the conversation; add a message")
        if state.open_calls:
            raise build_order_error(
                state.place, f"the calls {sorted(state.open_calls)} have no results; each needs one"
            )


def build_order_error(index: int, problem: str) -> ProviderRuleError:
    """Return the exception that says which rule about the order of messages the message at `index` breaks."""
    return ProviderRuleError(f"messages[{index}]: {problem}. The request was not sent")


def _check_results(place: int, calls: frozenset[str], results: Sequence[str]) -> None:
    if calls == frozenset(results) and len(results) == len(calls):
        return
    if missing := calls - frozenset(results):
        raise build_order_error(place, f"the calls {sorted(missing)} are not answered by the message that follows them")
    if strange := frozenset(results) - calls:
        raise build_order_error(place, f"the results {sorted(strange)} belong to no call of the message before")
    raise build_order_error(place, f"a call is answered twice, among {sorted(results)}")
