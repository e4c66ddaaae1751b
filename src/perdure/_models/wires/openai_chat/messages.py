"""Encode messages, their text and media for the chat completions API; each encoded message is cached. No I/O."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure._core.values.message import (
    Audio,
    Document,
    Image,
    Media,
    Message,
    Part,
    Status,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Video,
)
from perdure._models.endpoint.memo import encode_lossy_json
from perdure._models.endpoint.profile import Profile
from perdure._models.wires.attachments import (
    decode_text_document,
    describe_unsupported_media,
    encode_base64,
    get_assistant_text,
    is_image,
    normalize_media,
)
from perdure._models.wires.tools import CallIdTranslator, sanitize_tool_name

from .dialect import REASONING_CONTENT, ChatDialect
from .reply_fields import ANNOTATION_FIELD, REASONING_DETAILS_FIELD

EMPTY_MESSAGE_TEXT = "[empty message]"
"""Placeholder for a message without content, which many providers refuse."""

_AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/flac": "flac",
    "audio/ogg": "ogg",
    "audio/opus": "opus",
    "audio/mp4": "m4a",
    "audio/m4a": "m4a",
}


def encode_user_content(parts: Sequence[Part], profile: Profile, dialect: ChatDialect) -> str | list[dict[str, Any]]:
    """Encode the content of a user message: a string, or a list of text and media items."""
    items = [item for part in parts if (item := encode_part(part, profile, dialect)) is not None]
    if not items:
        return EMPTY_MESSAGE_TEXT
    if all(item["type"] == "text" for item in items):
        return "\n".join([item["text"] for item in items])
    return items


def encode_part(part: Part, profile: Profile, dialect: ChatDialect) -> dict[str, Any] | None:
    """Encode one message part as a content item; None for blank text. Unsupported media become a text note."""
    if isinstance(part, Text):
        return build_text_item(part.text) if part.text.strip() else None
    if not isinstance(part, Media):
        return None
    media = normalize_media(part)
    return encode_media(media, profile, dialect) or build_text_item(_describe_media(media))


def build_text_item(text: str) -> dict[str, Any]:
    """Return a text as a content item, `{"type": "text", …}`."""
    return {"type": "text", "text": text}


def encode_media(media: Media, profile: Profile, dialect: ChatDialect) -> dict[str, Any] | None:
    """Encode media as a content item, or return None if this model does not support it."""
    if is_image(media):
        return _encode_image(media) if profile.images else None
    match media:
        case Audio() if profile.audio and media.data and media.media_type in _AUDIO_FORMATS:
            sound = {"data": encode_base64(media), "format": _AUDIO_FORMATS[media.media_type]}
            return {"type": "input_audio", "input_audio": sound}
        case Video() if profile.video and (media.data or media.url):
            return {"type": "video_url", "video_url": {"url": build_media_url(media)}}
        case Document() if profile.documents and decode_text_document(media) is None:
            return _encode_file(media, dialect)
        case _:
            return None


def build_media_url(media: Media) -> str:
    """Return the URL by which media are sent: a `data:` URL if the bytes are known, else their own URL."""
    return f"data:{media.media_type};base64,{encode_base64(media)}" if media.data else media.url


def _encode_image(media: Media) -> dict[str, Any] | None:
    if not (media.data or media.url):
        return None
    picture = {"url": build_media_url(media)}
    if isinstance(media, Image) and media.detail:
        picture["detail"] = media.detail
    return {"type": "image_url", "image_url": picture}


def _encode_file(media: Media, dialect: ChatDialect) -> dict[str, Any] | None:
    if media.file_id:
        return {"type": "file", "file": {"file_id": media.file_id}}
    if not (media.data or media.url):
        return None
    if dialect.document_url:
        named = {"document_name": media.name} if media.name else {}
        return {"type": "document_url", "document_url": build_media_url(media), **named}
    return {"type": "file", "file": {"filename": media.name or "document", "file_data": build_media_url(media)}}


def _describe_media(media: Media) -> str:
    """Return the content of a text document; for other media, a note that names it."""
    text = decode_text_document(media) if isinstance(media, Document) else None
    if text is None:
        return describe_unsupported_media(media)
    return f"[document {media.name}]\n{text}" if media.name else text


_PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
"""Placeholder that Gemini 3 accepts as the signature of a call that it did not write."""

REASONING_PLACEHOLDER = " "
"""Thinking of a turn that has none. The makers of these models refuse an empty text."""

_ID_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_MAX_ID_LENGTH = 40
"""Maximum length of a call id; some providers refuse longer ones."""
_is_nine_letter_id = re.compile(r"[A-Za-z0-9]{9}").fullmatch


class ChatMessageEncoder:
    """Encoder of messages for chat completions requests, in the dialect of one provider."""

    def __init__(
        self, messages: Sequence[Message], profile: Profile, dialect: ChatDialect, *, echo: bool | None
    ) -> None:
        is_valid, convert = (_is_nine_letter_id, _to_nine_letters) if dialect.nine_letter_ids else (bool, _shorten_id)
        self._ids = CallIdTranslator(messages, profile, is_valid=is_valid, convert=convert, can_repeat=True)
        self._profile = profile
        self._dialect = dialect
        self._echoes = dialect.is_reasoning_sent_back(profile.model) if echo is None else echo
        self._needs_reasoning = is_reasoning_needed(profile, dialect)
        self._field = REASONING_CONTENT if self._needs_reasoning else dialect.echo or REASONING_CONTENT
        self._must_sign = dialect.signed_calls and "gemini-3" in profile.model

    def encode_message(self, message: Message) -> Sequence[dict[str, Any]]:
        """Encode the next message as a list of chat messages: one per tool result, none if the message is empty."""
        self._ids.enter(message)
        match message.role:
            case "assistant":
                return self._encode_assistant(message)
            case "tool":
                return self._encode_results(message)
            case role:
                return [{"role": role, "content": encode_user_content(message.parts, self._profile, self._dialect)}]

    # -- assistant messages --------------------------------------------------------------------------------------------

    def _encode_assistant(self, message: Message) -> Sequence[dict[str, Any]]:
        calls = message.tool_calls
        text = "".join([get_assistant_text(part) for part in message.parts])
        if not (calls or text.strip()):
            return ()
        item: dict[str, Any] = {"role": "assistant"}
        if text.strip():
            item["content"] = text
        is_own = self._profile.is_author(message.provider, message.model)
        if is_own:
            _add_text_signature(message, item)
        if self._dialect.file_annotations and (read := _list_file_annotations(message)):
            item[ANNOTATION_FIELD] = read
        if is_own and self._echoes and (calls or self._needs_reasoning):
            self._add_reasoning(message, item)
        if self._needs_reasoning:
            item.setdefault(self._field, REASONING_PLACEHOLDER)
        if not calls:
            return [item]
        item["tool_calls"] = [
            self._encode_tool_call(call, is_own=is_own, is_first=place == 0) for place, call in enumerate(calls)
        ]
        return [item]

    def _add_reasoning(self, message: Message, item: dict[str, Any]) -> None:
        """Add the model's thinking to its message: the original blocks if there are any, otherwise the text."""
        thoughts = [part for part in message.parts if isinstance(part, Thinking)]
        blocks = [block for thought in thoughts for block in thought.details.get(REASONING_DETAILS_FIELD, ())]
        words = "".join([thought.text for thought in thoughts])
        if blocks:
            item[REASONING_DETAILS_FIELD] = blocks
            if words and self._needs_reasoning:  # gateways pass on no more than this field to these models
                item[self._field] = words
        elif words and self._field == "content":
            thinking = {"type": "thinking", "thinking": [build_text_item(words)]}
            item["content"] = [thinking, build_text_item(item["content"])] if "content" in item else [thinking]
        elif words:
            item[self._field] = words

    def _encode_tool_call(self, call: ToolCall, *, is_own: bool, is_first: bool) -> dict[str, Any]:
        function = {"name": sanitize_tool_name(call.name), "arguments": _ensure_json_object(call.arguments)}
        said: dict[str, Any] = {"id": self._ids.encode_id(call.call_id), "type": "function", "function": function}
        signature = call.signature if is_own and _is_google_signature(call.signature) else ""
        if self._must_sign and is_first:
            signature = signature or _PLACEHOLDER_SIGNATURE
        if signature:
            said["extra_content"] = {"google": {"thought_signature": signature}}
        return said

    # -- tool results --------------------------------------------------------------------------------------------------

    def _encode_results(self, message: Message) -> Sequence[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        following: list[dict[str, Any]] = []
        for result in message.tool_results:
            item = {
                "role": "tool",
                "tool_call_id": self._ids.encode_id(result.call_id),
                "content": self._encode_result_content(result, following),
            }
            if self._dialect.named_results:
                item["name"] = sanitize_tool_name(result.name)
            items.append(item)
        if following:
            items.append({"role": "user", "content": following})
        return items

    def _encode_result_content(self, result: ToolResult, following: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """Encode the content of a tool result. Media that cannot be part of a result are appended to `following`."""
        items: list[dict[str, Any]] = []
        for part in result.content:
            media = normalize_media(part) if isinstance(part, Media) else None
            view = encode_media(media, self._profile, self._dialect) if media is not None else None
            if media is None or view is None or self._dialect.images_in_results:
                items += [item] if (item := encode_part(part, self._profile, self._dialect)) is not None else []
            else:
                items.append(build_text_item(describe_unsupported_media(media, "it follows these results")))
                following += [build_text_item(f"From the result of {result.name}:"), view]
        if result.is_error:
            items.insert(0, build_text_item(_STATUS_PREFIXES[result.status]))
        if not items:
            return "[no output]"
        if all(item["type"] == "text" for item in items):
            return "\n".join([item["text"] for item in items])
        return items


def is_reasoning_needed(profile: Profile, dialect: ChatDialect) -> bool:
    """Return True if the model refuses turns of the assistant without thinking."""
    return profile.needs_reasoning or dialect.is_reasoning_needed(profile.model)


_STATUS_PREFIXES: Mapping[Status, str] = {
    status: f"[{str(status).replace('_', ' ')}]" for status in Status if status is not Status.OK
}
"""Prefix of the text of a failed result, by status: this API has no other way to mark one."""


def _add_text_signature(message: Message, item: dict[str, Any]) -> None:
    """Add Gemini's signature of a whole message to the encoded message."""
    for part in message.parts:
        if type(part) is Text and _is_google_signature(part.signature):
            item["extra_content"] = {"google": {"thought_signature": part.signature}}


def _is_google_signature(signature: str) -> bool:
    """Return True if a signature is one of Gemini, not the JSON that the Responses API stores there."""
    return bool(signature) and not signature.startswith("{")


def _shorten_id(call_id: str) -> str:
    return call_id if len(call_id) <= _MAX_ID_LENGTH else f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"


def _to_nine_letters(call_id: str) -> str:
    if _is_nine_letter_id(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8])
    letters: list[str] = []
    for _ in range(9):
        number, letter = divmod(number, len(_ID_ALPHABET))
        letters.append(_ID_ALPHABET[letter])
    return "".join(letters)


def _list_file_annotations(message: Message) -> list[dict[str, Any]]:
    """Return the annotations of a reply that have the content of a file, as the provider sent them."""
    return [citation.details for citation in message.citations if citation.details.get("type") == "file"]


def _ensure_json_object(arguments: str) -> str:
    """Return a call's arguments unchanged if they are a JSON object; otherwise wrap them in one.

    Servers pass arguments to a chat template that parses them as JSON and fails if they are not.
    """
    if arguments.strip() in ("", "null"):
        return "{}"
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return encode_lossy_json({"_raw": arguments}).decode()
    return arguments
