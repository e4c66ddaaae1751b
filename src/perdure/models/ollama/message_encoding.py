"""Encode messages for Ollama's chat API. No I/O.

Content is plain text, and images are beside it. A model gets its own thinking back on turns in which it called tools.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from perdure.core.message import Document, Media, Message, Part, Text, Thinking, ToolCall, ToolResult
from perdure.models.attachment_preparation import (
    decode_text_document,
    describe_unsupported_media,
    encode_base64,
    get_assistant_text,
    is_image,
    normalize_media,
)
from perdure.models.encoding_memo import Item
from perdure.models.profile import Profile
from perdure.models.tool_call_id_translation import CallIdTranslator
from perdure.models.tool_names import sanitize_tool_name

EMPTY_MESSAGE_TEXT = "[empty message]"
"""Placeholder for a user message without content."""
NO_OUTPUT_TEXT = "[no output]"
"""Text of a result that is empty."""


def build_message_encoder(
    messages: Sequence[Message], profile: Profile, *, echo: bool
) -> Callable[[Message], Sequence[Item]]:
    """Return a function that encodes one message of a conversation for Ollama's chat API.

    Unless `echo`, the model's earlier thinking is left out.
    """
    ids = CallIdTranslator(messages, profile, can_repeat=True)

    def encode_message(message: Message) -> Sequence[Item]:
        ids.enter(message)
        if message.role == "assistant":
            is_echoed = echo and profile.is_author(message.provider, message.model)
            return _encode_assistant(message, ids, is_echoed=is_echoed)
        if message.role == "tool":
            return [_encode_result(result, profile, ids) for result in message.tool_results]
        return [_build_message(message.role, message.parts, profile, EMPTY_MESSAGE_TEXT)]

    return encode_message


def _build_message(role: str, parts: Iterable[Part], profile: Profile, placeholder: str) -> dict[str, Any]:
    """Build a message of text and images. Media that the model cannot take become a note in the text."""
    texts: list[str] = []
    images: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            texts += [part.text] if part.text.strip() else []
        elif isinstance(part, Media):
            media = normalize_media(part)
            if is_image(media) and media.data and profile.images:
                images.append(encode_base64(media))
            else:
                texts.append(_describe_media(media, profile))
    message: dict[str, Any] = {"role": role, "content": "\n".join(texts) or ("" if images else placeholder)}
    return {**message, "images": images} if images else message


def _describe_media(media: Media, profile: Profile) -> str:
    """Return the text of a text document; for other media that cannot be sent, a note."""
    text = decode_text_document(media) if isinstance(media, Document) else None
    if text is not None:
        return f"[document {media.name}]\n{text}" if media.name else text
    can_see = is_image(media) and profile.images
    return describe_unsupported_media(media, "this server does not fetch images" if can_see else "")


def _encode_assistant(message: Message, ids: CallIdTranslator, *, is_echoed: bool) -> Sequence[Item]:
    calls = [_encode_call(part, ids) for part in message.parts if isinstance(part, ToolCall)]
    text = "".join([get_assistant_text(part) for part in message.parts])
    if not calls and not text.strip():
        return ()
    item: dict[str, Any] = {"role": "assistant", "content": text}
    thinking = "".join([part.text for part in message.parts if isinstance(part, Thinking)])
    if calls and thinking and is_echoed:
        item["thinking"] = thinking
    return [{**item, "tool_calls": calls} if calls else item]


def _encode_call(call: ToolCall, ids: CallIdTranslator) -> dict[str, Any]:
    function = {"name": sanitize_tool_name(call.name), "arguments": _parse_arguments(call.arguments)}
    return {"id": ids.encode_id(call.call_id), "function": function}


def _parse_arguments(arguments: str) -> Any:
    """Return the arguments as an object, the only form that the server takes; other text is wrapped in one."""
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"_raw": arguments} if arguments.strip() not in ("", "null") else {}
    return msgspec.Raw(arguments.encode())


def _encode_result(result: ToolResult, profile: Profile, ids: CallIdTranslator) -> Item:
    failed = [Text(f"[{str(result.status).replace('_', ' ')}]")] if result.is_error else []
    item = _build_message("tool", [*failed, *result.content], profile, NO_OUTPUT_TEXT)
    return {**item, "tool_name": sanitize_tool_name(result.name), "tool_call_id": ids.encode_id(result.call_id)}
