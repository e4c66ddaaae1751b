"""Tools in requests: names and call ids that a provider accepts, and definitions that the caller adds. No I/O."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from perdure._core.values.message import Message, ToolCall
from perdure._models.endpoint.profile import Profile


def merge_tool_definitions(ours: Sequence[Mapping[str, Any]], theirs: Any) -> list[Any]:
    """Return the agent's tool definitions, then the caller's; of two with the same name, the caller's is kept.

    One of the caller's replaces one of ours that has the same name: so a tool whose definition is the provider's, such
    as Anthropic's `memory`, can be run by a tool of the agent.
    """
    added = list(cast("Sequence[Any]", theirs)) if isinstance(theirs, (list, tuple)) else []
    names = {_get_tool_name(each) for each in added} - {None}
    return [*[each for each in ours if _get_tool_name(each) not in names], *added]


def _get_tool_name(tool: Any) -> str | None:
    """Return the name in a tool definition, which may be inside an object such as `toolSpec`."""
    if not isinstance(tool, Mapping):
        return None
    fields = cast("Mapping[str, Any]", tool)
    inner: Any = next((value for key, value in fields.items() if key in {"toolSpec", "systemTool"}), fields)
    name = cast("Mapping[str, Any]", inner).get("name") if isinstance(inner, Mapping) else None
    return name if isinstance(name, str) else None


_is_well_formed = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
"""Match ids that are valid everywhere: one that was replaced nevertheless had been used before."""
_NO_IDS: Mapping[str, str] = {}


def _keep_id(call_id: str) -> str:
    return call_id


class CallIdTranslator:
    """Translator of tool-call ids for one request; it is given the messages in order, calls before results."""

    def __init__(
        self,
        messages: Sequence[Message],
        profile: Profile,
        *,
        is_valid: Callable[[str], object] = bool,
        convert: Callable[[str], str] = _keep_id,
        can_repeat: bool = False,
    ) -> None:
        """Set up the translation: `is_valid` is the provider's rule for ids; `convert` makes a valid id from another
        one.

        `can_repeat`: two messages may have calls of the same id.
        """
        self._messages = messages
        self._profile = profile
        self._is_valid = is_valid
        self._convert = convert
        self._can_repeat = can_repeat
        self._before: Message | None = None
        self._own: Mapping[str, str] = _NO_IDS

    def enter(self, message: Message) -> None:
        """Move on to the next message, whose calls or results `encode_id` translates."""
        before, self._before = self._before, message
        if message.role == "assistant":
            self._own = self._list_own_ids(message)
        elif message.role == "tool":
            if before is None:  # it was encoded in an earlier request
                before = _find_preceding_message(self._messages, message)
                self._own = _NO_IDS if before is None else self._list_own_ids(before)
        else:
            self._own = _NO_IDS

    def encode_id(self, call_id: str) -> str:
        """Return the id to send for a call of the message, or for a result of it."""
        return self._own.get(call_id) or self._convert(call_id)

    def _list_own_ids(self, message: Message) -> Mapping[str, str]:
        """Return the ids under which the provider knows its own calls; none if the message is not its own."""
        calls = message.tool_calls
        if not calls or not self._profile.is_author(message.provider, message.model):
            return _NO_IDS
        return {call.call_id: self._choose_own_id(call, message) for call in calls}

    def _choose_own_id(self, call: ToolCall, message: Message) -> str:
        own = call.provider_call_id
        if not own or _is_well_formed(own):
            own = call.call_id
        elif _is_used_before((message,) if self._can_repeat else self._messages, call):
            return self._convert(call.call_id)
        return own if self._is_valid(own) else self._convert(call.call_id)


def _is_used_before(messages: Sequence[Message], call: ToolCall) -> bool:
    """Return True if an earlier call has the same id of the provider."""
    for message in messages:
        for part in message.parts:
            if part is call:
                return False
            if type(part) is ToolCall and part.provider_call_id == call.provider_call_id:
                return True
    return False


def _find_preceding_message(messages: Sequence[Message], message: Message) -> Message | None:
    for place in range(len(messages) - 1, 0, -1):
        if messages[place] is message:
            return messages[place - 1]
    return None


MAX_TOOL_NAME_LENGTH = 64
"""Maximum length of a tool name."""

_DISALLOWED = re.compile(r"[^A-Za-z0-9_-]+")


def sanitize_tool_name(name: str) -> str:
    """Return the tool name with invalid characters replaced by `_`, cut to the length that every provider accepts."""
    return _DISALLOWED.sub("_", name)[:MAX_TOOL_NAME_LENGTH] or "_"
