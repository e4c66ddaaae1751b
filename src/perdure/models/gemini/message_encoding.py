"""Encode messages as `contents`, the messages of the Gemini API. No I/O.

The output of a model is sent back part by part: a signature belongs to the part that it was received with, so parts are
neither joined nor moved. Only the author gets its signatures, its thoughts and the steps of tools that its provider
ran.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from perdure.core.jsonable import replace_surrogates
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
    parts_to_text,
)
from perdure.models.assistant_turn_separator import CONTINUE_MESSAGE
from perdure.models.attachment_preparation import describe_unsupported_media
from perdure.models.encoding_memo import Item
from perdure.models.profile import Profile
from perdure.models.tool_call_id_translation import CallIdTranslator
from perdure.models.tool_names import MAX_TOOL_NAME_LENGTH, sanitize_tool_name

from .media import encode_media
from .model_features import is_signature_required

PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
"""Placeholder for the signature of a call that has none, for models that refuse calls without one."""
EMPTY_MESSAGE_TEXT = "(no text)"
"""Placeholder for an empty message: empty text is refused."""
_MEDIA_TYPES = (Image, Audio, Video, Document)


def insert_user_turns(messages: Sequence[Message]) -> Sequence[Message]:
    """Insert user messages where Gemini requires them: at the start, at the end, and before tool calls."""
    abrupt: list[int] = []
    before = "assistant"  # so that the first message is checked like the others
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
        whole.insert(place, CONTINUE_MESSAGE)
    return [*whole, CONTINUE_MESSAGE] if ends else whole


class GeminiMessageEncoder:
    """Encoder of the messages of one model request as `contents`, the messages of the Gemini API.

    It is given the messages in order.
    """

    def __init__(self, messages: Sequence[Message], profile: Profile, *, echo: bool = True) -> None:
        """Set up the encoder; with `echo`, the model gets its own signatures and thoughts back."""
        self.profile = profile
        self.echo = echo
        self._ids = CallIdTranslator(messages, profile)

    def encode_without_ids(self, message: Message) -> list[Item]:
        """Encode one message without the ids of calls and results, which Vertex AI refuses."""
        items = self.encode_message(message)
        for part in [part for item in items for part in item["parts"]]:
            for kind in ("functionCall", "functionResponse"):
                if kind in part:
                    part[kind] = {name: value for name, value in part[kind].items() if name != "id"}
        return items

    def encode_message(self, message: Message) -> list[Item]:
        """Encode the next message as a list of contents: none if it is empty, two for tool results with media."""
        self._ids.enter(message)
        match message.role:
            case "assistant":
                parts = self._encode_assistant_parts(message)
                return [{"role": "model", "parts": parts}] if parts else []
            case "tool":
                return self._encode_results(message.tool_results)
            case _:
                parts = [each for part in message.parts if (each := self._encode_user_part(part)) is not None]
                return [{"role": "user", "parts": parts or [{"text": EMPTY_MESSAGE_TEXT}]}]

    def _encode_user_part(self, part: Part) -> dict[str, Any] | None:
        """Encode a part of a user message; None if it is empty."""
        if isinstance(part, _MEDIA_TYPES):
            return _as_part(encode_media(part, self.profile))
        text = replace_surrogates(parts_to_text([part]))
        return {"text": text} if text else None

    def _encode_assistant_parts(self, message: Message) -> list[dict[str, Any]]:
        """Encode the parts of an assistant message."""
        own = self.echo and self.profile.is_author(message.provider, message.model)
        calls = any(type(part) is ToolCall for part in message.parts)
        said: list[dict[str, Any]] = []
        for part in message.parts:
            match part:
                case Text():
                    _append_part(said, {"text": replace_surrogates(part.text)}, part.signature if own else "")
                case ToolCall():
                    _append_part(said, {"functionCall": self._encode_tool_call(part)}, part.signature if own else "")
                case Thinking() if own:
                    _append_thinking(said, part, with_calls=calls)
                case Image() | Audio() | Video() | Document():
                    said.append(self._encode_assistant_media(part, own=own))
                case _:
                    pass  # the thinking of another model
        if calls and is_signature_required(self.profile.model):
            _sign_first_call(said)
        return said

    def _encode_assistant_media(self, part: Media, *, own: bool) -> dict[str, Any]:
        """Encode media that a model made. Media of another model become a text note, as only the model's own are
        accepted.
        """
        return _as_part(
            encode_media(part, self.profile)
            if own
            else replace_surrogates(describe_unsupported_media(part, "made by another model"))
        )

    def _encode_results(self, results: Sequence[ToolResult]) -> list[Item]:
        """Encode tool results. A result is an object without media, so media follow in a separate content."""
        responses: list[dict[str, Any]] = []
        shown: list[dict[str, Any]] = []
        for result in results:
            lines: list[str] = []
            for part in result.content:
                if isinstance(part, Text):
                    lines.append(replace_surrogates(part.text))
                    continue
                media = encode_media(part, self.profile)
                if isinstance(media, str):
                    lines.append(media)
                else:
                    lines.append(replace_surrogates(describe_unsupported_media(part, "shown below")))
                    shown += [
                        {
                            "text": replace_surrogates(
                                describe_unsupported_media(part, f"from the result of {result.name}")
                            )
                        },
                        media,
                    ]
            responses.append({"functionResponse": self._encode_response(result, "\n".join(lines))})
        items: list[Item] = [{"role": "user", "parts": responses}] if responses else []
        return [*items, {"role": "user", "parts": shown}] if shown else items

    def _encode_tool_call(self, call: ToolCall) -> dict[str, Any]:
        name, given = sanitize_function_name(call.name), _parse_arguments(call.arguments)
        return {"id": self._ids.encode_id(call.call_id), "name": name, "args": given}

    def _encode_response(self, result: ToolResult, text: str) -> dict[str, Any]:
        if result.is_error:
            response = {"error": text or f"The call has ended with the status {result.status.value!r}."}
        else:
            response = {"output": text}
        name = sanitize_function_name(result.name)
        return {"id": self._ids.encode_id(result.call_id), "name": name, "response": response}


def sanitize_function_name(name: str) -> str:
    """Return a function name that Gemini accepts: invalid characters are replaced, and long names are cut."""
    name = sanitize_tool_name(name)
    return name if name[0].isalpha() or name[0] == "_" else f"_{name}"[:MAX_TOOL_NAME_LENGTH]


def _as_part(media: dict[str, Any] | str) -> dict[str, Any]:
    return {"text": media} if isinstance(media, str) else media


def _append_part(said: list[dict[str, Any]], part: dict[str, Any], signature: str) -> None:
    """Append a part with its signature. Empty text is appended only if it has a signature."""
    if signature:
        said.append({**part, "thoughtSignature": signature})
    elif part.get("text") != "":
        said.append(part)


def _append_thinking(said: list[dict[str, Any]], part: Thinking, *, with_calls: bool) -> None:
    """Append a thinking part, or a step of a tool that the provider ran, for the model that wrote it.

    Steps and signatures are sent back on every turn, since they stand for content of that turn; readable thoughts only
    on turns with calls, which continue them.
    """
    if "part" in part.details:
        said.append(part.details["part"])
    elif "of" in part.details:
        if said:
            said[-1] = {**said[-1], "thoughtSignature": part.signature}
    elif with_calls or part.signature:
        _append_part(said, {"text": replace_surrogates(part.text), "thought": True}, part.signature)


def _parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments as an object, the only form the API accepts; other text is wrapped in one."""
    try:
        value: Any = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        value = None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"_raw": replace_surrogates(text)}


def _sign_first_call(said: list[dict[str, Any]]) -> None:
    """Add a placeholder signature to the first call of a turn if it has none, since the provider requires one."""
    for part in said:
        if "functionCall" in part:
            part.setdefault("thoughtSignature", PLACEHOLDER_SIGNATURE)
            return
