"""A message as the contents that Gemini reads. Above: `encode.py`. Below: `media.py`, `generation.py`, `core`.

What a model has written goes back part by part: a signature belongs to the part that it came on, so parts are neither
joined nor moved. Only the author gets its signatures, its thoughts and the steps of tools that its provider ran.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from perdure.core.message import (
    Audio,
    Document,
    Image,
    Media,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Video,
    flatten,
    user,
)
from perdure.core.plain import clean
from perdure.models.attachment import note
from perdure.models.memo import Item
from perdure.models.naming import LONGEST, tool_name
from perdure.models.profile import Profile

from .generation import wants_signatures
from .media import part_of

UNSIGNED = "skip_thought_signature_validator"
"""What stands for the signature of a call that has none, where the provider refuses calls without one."""
NOTHING_SAID = "(no text)"
"""What stands for a message with nothing in it: empty text is refused."""
GO_ON = user("Continue.")
"""What is put between two turns of a model, and after the last: a call must follow something that a user said."""

_MEDIA = (Image, Audio, Video, Document)


def flowing(messages: Sequence[Message]) -> Sequence[Message]:
    """The conversation, begun and ended by a user, and with one heard before every call. Nearly always it is as is."""
    abrupt: list[int] = []
    before = "assistant"  # as if: then the first message is looked at like any other
    for place, message in enumerate(messages):
        role = message.role
        if role == before == "assistant" and (place == 0 or message.tool_calls):
            abrupt.append(place)
        before = role
    ends = bool(messages) and before == "assistant"
    if not abrupt and not ends:
        return messages
    whole = list(messages)
    for place in reversed(abrupt):
        whole.insert(place, GO_ON)
    return [*whole, GO_ON] if ends else whole


class Contents(Struct, frozen=True):
    """Turns messages into contents. What it makes of a message depends on nothing but the message and these fields."""

    profile: Profile
    echo: bool = True
    """Whether the model gets its own signatures and thoughts back."""

    def of(self, message: Message) -> list[Item]:
        """The contents of one message: none, one, or two for results that hold media."""
        match message.role:
            case "assistant":
                parts = self._spoken(message)
                return [{"role": "model", "parts": parts}] if parts else []
            case "tool":
                return self._answered(message.tool_results)
            case _:
                parts = [each for part in message.parts if (each := self._heard(part)) is not None]
                return [{"role": "user", "parts": parts or [{"text": NOTHING_SAID}]}]

    def _heard(self, part: Part) -> dict[str, Any] | None:
        """What a user said or showed."""
        if isinstance(part, _MEDIA):
            return _shown(part_of(part, self.profile))
        text = clean(flatten([part]))
        return {"text": text} if text else None

    def _spoken(self, message: Message) -> list[dict[str, Any]]:
        """What a model said."""
        own = self.echo and self.profile.wrote(message.provider, message.model)
        calls = any(type(part) is ToolCall for part in message.parts)
        said: list[dict[str, Any]] = []
        for part in message.parts:
            match part:
                case Text():
                    _say(said, {"text": clean(part.text)}, part.signature if own else "")
                case ToolCall():
                    _say(said, {"functionCall": _called(part)}, part.signature if own else "")
                case Thinking() if own:
                    _think(said, part, with_calls=calls)
                case Image() | Audio() | Video() | Document():
                    said.append(self._drawn(part, own=own))
                case _:
                    pass  # the thoughts of another model
        if calls and wants_signatures(self.profile.model):
            _sign_first_call(said)
        return said

    def _drawn(self, part: Media, *, own: bool) -> dict[str, Any]:
        """A picture that a model made. To another model it is told: what a model said holds only its own pictures."""
        return _shown(part_of(part, self.profile) if own else clean(note(part, "made by another model")))

    def _answered(self, results: Sequence[ToolResult]) -> list[Item]:
        """Results are objects, which hold no media: those follow, in a content of their own."""
        responses: list[dict[str, Any]] = []
        shown: list[dict[str, Any]] = []
        for result in results:
            lines: list[str] = []
            for part in result.content:
                if isinstance(part, Text):
                    lines.append(clean(part.text))
                    continue
                media = part_of(part, self.profile)
                if isinstance(media, str):
                    lines.append(media)
                else:
                    lines.append(clean(note(part, "shown below")))
                    shown += [{"text": clean(note(part, f"from the result of {result.name}"))}, media]
            responses.append({"functionResponse": _response(result, "\n".join(lines))})
        items: list[Item] = [{"role": "user", "parts": responses}] if responses else []
        return [*items, {"role": "user", "parts": shown}] if shown else items


def function_name(name: str) -> str:
    """The name of a function as it may stand there, whatever a model has called."""
    name = tool_name(name)
    return name if name[0].isalpha() or name[0] == "_" else f"_{name}"[:LONGEST]


def _shown(media: dict[str, Any] | str) -> dict[str, Any]:
    return {"text": media} if isinstance(media, str) else media


def _say(said: list[dict[str, Any]], part: dict[str, Any], signature: str) -> None:
    """One more part. One without words stays only for its signature."""
    if signature:
        said.append({**part, "thoughtSignature": signature})
    elif part.get("text") != "":
        said.append(part)


def _think(said: list[dict[str, Any]], part: Thinking, *, with_calls: bool) -> None:
    """What the author has thought, or what its provider has done for it.

    Steps of provider-run tools, and signatures, return on every turn, since they stand for what was said there; the
    readable thoughts only on turns with calls, which go on from them.
    """
    if "part" in part.details:
        said.append(part.details["part"])
    elif "of" in part.details:
        if said:
            said[-1] = {**said[-1], "thoughtSignature": part.signature}
    elif with_calls or part.signature:
        _say(said, {"text": clean(part.text), "thought": True}, part.signature)


def _called(call: ToolCall) -> dict[str, Any]:
    return {"id": call.call_id, "name": function_name(call.name), "args": _arguments(call.arguments)}


def _arguments(text: str) -> dict[str, Any]:
    """The arguments as an object, which is all that the wire takes; other text is kept in one."""
    try:
        value: Any = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        value = None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"_raw": clean(text)}


def _response(result: ToolResult, text: str) -> dict[str, Any]:
    if result.is_error:
        response = {"error": text or f"The call has ended with the status {result.status.value!r}."}
    else:
        response = {"output": text}
    return {"id": result.call_id, "name": function_name(result.name), "response": response}


def _sign_first_call(said: list[dict[str, Any]]) -> None:
    """The first call of a turn must carry a signature. On every turn, and not only since the last word of the user,
    where alone it is looked for: then what has been sent never changes.
    """
    for part in said:
        if "functionCall" in part:
            part.setdefault("thoughtSignature", UNSIGNED)
            return
