"""Encode messages, their text and media as `input` items of the Responses API. No I/O."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from perdure._core.values.message import (
    Audio,
    Citation,
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
)
from perdure._models.endpoint.memo import Item
from perdure._models.endpoint.profile import Profile
from perdure._models.wires import attachments
from perdure._models.wires.tools import CallIdTranslator, sanitize_tool_name

from . import item_metadata as mark
from .dialect import ResponsesDialect

_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}


def build_input_text(text: str) -> dict[str, Any]:
    """Return text for the model as a content item of the Responses API, `{"type": "input_text", …}`."""
    return {"type": "input_text", "text": text}


def build_output_text(text: str) -> dict[str, Any]:
    """Return text that the model wrote as a content item of the Responses API, `{"type": "output_text", …}`."""
    return {"type": "output_text", "text": text}


def encode_content(parts: Iterable[Part], profile: Profile, dialect: ResponsesDialect) -> list[Item]:
    """Encode the text and media of a user message or a tool result for the Responses API; empty text is left out."""
    shown: list[Item] = []
    for part in parts:
        if isinstance(part, Text):
            if part.text:
                shown.append(build_input_text(part.text))
        elif isinstance(part, Media):
            shown.append(_encode_media(attachments.normalize_media(part), profile, dialect))
    return shown


def join_text_items(items: Sequence[Item]) -> str | None:
    """Join text content items into one string; None if there are items other than text."""
    if any(each["type"] != "input_text" for each in items):
        return None
    return "\n".join([str(each["text"]) for each in items])


def _encode_media(media: Media, profile: Profile, dialect: ResponsesDialect) -> Item:
    if not (media.data or media.url or media.file_id):
        return build_input_text(attachments.describe_unsupported_media(media, "there is nothing in it"))
    if attachments.is_image(media):
        return (
            _encode_image(media) if profile.images else build_input_text(attachments.describe_unsupported_media(media))
        )
    match media:
        case Audio() if profile.audio and media.media_type in _AUDIO_FORMATS and media.data:
            recording = {
                "data": attachments.encode_base64(media),
                "format": _AUDIO_FORMATS[media.media_type],
            }
            return {"type": "input_audio", "input_audio": recording}
        case Document() if profile.documents:
            return _encode_file(media, dialect)
        case Document() if (words := attachments.decode_text_document(media)) is not None:
            return build_input_text(f"[document {media.name}]\n{words}" if media.name else words)
        case Video() if profile.video:
            return _encode_file(media, dialect)
        case _:
            return build_input_text(attachments.describe_unsupported_media(media))


def _encode_image(media: Media) -> Item:
    image: dict[str, Any] = {"type": "input_image"}
    if media.data:
        image["image_url"] = _build_data_url(media, "image/png")
    elif media.url:
        image["image_url"] = media.url
    else:
        image["file_id"] = media.file_id
    if isinstance(media, Image) and media.detail:
        image["detail"] = media.detail
    return image


def _encode_file(media: Media, dialect: ResponsesDialect) -> Item:
    if not media.data:
        return {"type": "input_file", **({"file_url": media.url} if media.url else {"file_id": media.file_id})}
    file: dict[str, Any] = {"type": "input_file", "filename": media.name or _get_default_file_name(media)}
    if dialect.data_urls:
        return {**file, "file_data": _build_data_url(media, "application/pdf")}
    return {
        **file,
        "file_data": attachments.encode_base64(media),
        "mime_type": media.media_type or "application/pdf",
    }


def _build_data_url(media: Media, fallback: str) -> str:
    return f"data:{media.media_type or fallback};base64,{attachments.encode_base64(media)}"


def _get_default_file_name(media: Media) -> str:
    """Return a default name for a file: the provider refuses files without one."""
    ending = media.media_type.rpartition("/")[2] or "pdf"
    return f"document.{'txt' if ending == 'plain' else ending}"


NO_OUTPUT = "(no output)"
"""Text of a result that is empty."""
_REASONING_PLACEHOLDER: Item = {
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": " "}],
}
"""Reasoning of a turn that has none, for models that refuse calls without it."""


class ResponsesMessageEncoder:
    """Encoder of the messages of one request as `input` items of the Responses API, in order."""

    def __init__(
        self,
        messages: Sequence[Message],
        profile: Profile,
        dialect: ResponsesDialect,
        *,
        echo: bool | None,
        stored: bool,
    ) -> None:
        """Set up the encoder; `echo` is `Settings.echo_reasoning`, `stored` if the provider stores its responses."""
        self._messages = messages
        self._profile = profile
        self._dialect = dialect
        self._echo = echo
        self._stored = stored
        self._needs_reasoning = dialect.needs_reasoning or profile.needs_reasoning
        self._ids = CallIdTranslator(messages, profile, is_valid=self._is_valid_id)
        self._before: Message | None = None

    def _is_valid_id(self, call_id: str) -> bool:
        return len(call_id) <= self._dialect.longest_id

    def encode_message(self, message: Message) -> Sequence[Item]:
        """Encode the next message as a list of `input` items."""
        before, self._before = self._before, message
        self._ids.enter(message)
        match message.role:
            case "assistant":
                return self._encode_assistant(message)
            case "tool":
                return self._encode_results(message, before or self._find_preceding_message(message))
            case role:
                said = encode_content(message.parts, self._profile, self._dialect)
                return [_build_message("user" if role == "user" else self._dialect.system_role, said)] if said else ()

    def _find_preceding_message(self, message: Message) -> Message | None:
        """Return the message before this one if it was encoded in an earlier request."""
        for place in range(len(self._messages) - 1, 0, -1):
            if self._messages[place] is message:
                return self._messages[place - 1]
        return None

    # -- assistant messages --------------------------------------------------------------------------------------------

    def _encode_assistant(self, message: Message) -> Sequence[Item]:
        own = self._profile.is_author(message.provider, message.model)
        echoes = own and self._is_reasoning_sent_back(message)
        items: list[Item] = []
        is_annotated = message.provider == self._profile.provider
        for part in message.parts:
            match part:
                case Text(text=text) if text:
                    items.append(_encode_text(text, self._get_item_metadata(part.signature, own=own, echoes=echoes)))
                case Citation(details=details) if details and is_annotated and items:
                    _add_annotation(items[-1], details)
                case Thinking() if echoes:
                    items.append(self._encode_thinking(part))
                case ToolCall():
                    if self._needs_reasoning and not any(each["type"] == "reasoning" for each in items):
                        items.append(_REASONING_PLACEHOLDER)
                    items.append(self._encode_call(part, own=own, echoes=echoes))
                case Media():
                    items.append(_encode_text(attachments.describe_unsupported_media(part, "not shown again"), {}))
                case _:
                    pass
        while items and items[-1]["type"] == "reasoning":  # refused without the item that it belongs to
            items.pop()
        return items

    def _encode_call(self, call: ToolCall, *, own: bool, echoes: bool) -> Item:
        if own and call.run_by_provider:
            return {**mark.decode_item_metadata(call.signature), "arguments": _ensure_json_object(call.arguments)}
        signature = "" if call.run_by_provider else call.signature
        marks = self._get_item_metadata(signature, own=own, echoes=echoes)
        return _encode_tool_call(call, self._ids.encode_id(call.call_id), marks)

    def _is_reasoning_sent_back(self, message: Message) -> bool:
        """Return True if the reasoning of this message is sent back to the model that wrote it, in full."""
        thoughts = [part for part in message.parts if type(part) is Thinking]
        if self._echo is False or not all(mark.can_send_back(thought, stored=self._stored) for thought in thoughts):
            return False
        has_calls = any(type(part) is ToolCall for part in message.parts)
        return bool(self._echo) or has_calls or any(mark.has_unknown_item(thought) for thought in thoughts)

    def _get_item_metadata(self, signature: str, *, own: bool, echoes: bool) -> mark.ItemMetadata:
        """Return the metadata to send with a text or a call; empty unless this model wrote it.

        An id is sent only if the provider has stored the item: one that stores nothing cannot find it and refuses the
        request.
        """
        if not own:
            return {}
        marks = mark.decode_item_metadata(signature)
        if "id" in marks and not (self._stored and echoes):
            return {name: value for name, value in marks.items() if name != "id"}
        return marks

    def _encode_thinking(self, thought: Thinking) -> Item:
        item = mark.rebuild_item(thought)
        if item["type"] == "reasoning" and not self._stored:
            item.pop("id", None)
        return item

    # -- tool results --------------------------------------------------------------------------------------------------

    def _encode_results(self, message: Message, asking: Message | None) -> Sequence[Item]:
        marks = self._decode_call_metadata(asking)
        items: list[Item] = []
        attached: list[Item] = []
        for result in message.tool_results:
            kind = marks.get(result.call_id, {}).get("type", "function_call")
            if kind == mark.APPROVAL_REQUEST:
                items.append(_encode_approval(result, marks[result.call_id]))
                continue
            output, beside = self._encode_result_output(result)
            items.append({"type": f"{kind}_output", "call_id": self._ids.encode_id(result.call_id), "output": output})
            if beside:
                attached += [build_input_text(f"Attachments of {result.name}, call {result.call_id}:"), *beside]
        return [*items, _build_message("user", attached)] if attached else items

    def _decode_call_metadata(self, asking: Message | None) -> dict[str, mark.ItemMetadata]:
        """Return the metadata of each call that the results answer, by its id; nothing if another model made them."""
        if asking is None or not self._profile.is_author(asking.provider, asking.model):
            return {}
        return {call.call_id: mark.decode_item_metadata(call.signature) for call in asking.tool_calls if call.signature}

    def _encode_result_output(self, result: ToolResult) -> tuple[Any, list[Item]]:
        """Return the output of a tool result, and the attachments that must follow in a separate message."""
        failed = [Text(f"[{result.status}]")] if result.is_error else []
        parts: list[Part] = [*failed, *result.content]
        shown = encode_content(parts, self._profile, self._dialect)
        words = join_text_items(shown)
        if words is not None:
            return words or NO_OUTPUT, []
        if self._dialect.rich_results:
            return shown, []
        told = [each for each in shown if each["type"] == "input_text"]
        beside = [each for each in shown if each["type"] != "input_text"]
        return "\n".join([str(each["text"]) for each in told] or ["(see the attachments)"]), beside


def _encode_text(text: str, marks: mark.ItemMetadata) -> Item:
    """Encode the model's text as an item, with its phase, which models that set one need back."""
    return {"type": "message", "role": "assistant", "content": [build_output_text(text)], **marks}


def _add_annotation(item: Item, annotation: dict[str, Any]) -> None:
    """Add an annotation to the text that it follows."""
    if item["type"] == "message":
        item["content"][-1].setdefault("annotations", []).append(annotation)


def _encode_tool_call(call: ToolCall, call_id: str, marks: mark.ItemMetadata) -> Item:
    named = {"call_id": call_id, "name": sanitize_tool_name(call.name)}
    if marks.get("type") == mark.CUSTOM_TOOL_CALL:
        return {**named, "input": call.arguments, **marks}
    return {"type": "function_call", **named, "arguments": _ensure_json_object(call.arguments), **marks}


def _encode_approval(result: ToolResult, marks: mark.ItemMetadata) -> Item:
    """Encode the decision about a tool call that the provider makes itself."""
    answer: dict[str, Any] = {"type": "mcp_approval_response", "approval_request_id": marks.get("id", "")}
    if not result.is_error:
        return {**answer, "approve": True}
    return {**answer, "approve": False, "reason": result.text}


def _build_message(role: str, content: Sequence[Item]) -> Item:
    return {"type": "message", "role": role, "content": content}


def _ensure_json_object(arguments: str) -> str:
    """Return a call's arguments unchanged if they are a JSON object; otherwise wrap them in one. Some servers parse
    them and refuse anything else.
    """
    try:
        if isinstance(msgspec.json.decode(arguments), dict):
            return arguments
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        pass
    return msgspec.json.encode({"_raw": arguments}).decode() if arguments.strip() else "{}"
