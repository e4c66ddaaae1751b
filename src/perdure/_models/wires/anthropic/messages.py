"""Encode messages as lists of content blocks of the Messages API, cited text in passages. No I/O."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

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
from perdure._models.wires.tools import CallIdTranslator


class CitedPassage(Struct, frozen=True):
    """A passage of a reply's text, with the citations that belong to it."""

    text: str
    citations: tuple[Citation, ...]


def split_cited_text(parts: Sequence[Part]) -> Iterator[Part | CitedPassage]:
    """Yield a message's parts, its texts split into passages with and without citations; citation parts are left out.

    Citations without a span, and those of another provider, which have no details, are left out.
    """
    cited = [part for part in parts if isinstance(part, Citation) and part.details and part.end]
    offset = 0
    for part in parts:
        if isinstance(part, Text):
            end = offset + len(part.text)
            inside = [each for each in cited if offset <= (each.start or 0) < (each.end or 0) <= end]
            if inside:
                yield from _divide_text(part.text, offset, inside)
            else:
                yield part
            offset = end
        elif not isinstance(part, Citation):
            yield part


def _divide_text(text: str, offset: int, cited: list[Citation]) -> Iterator[Part | CitedPassage]:
    """Split a text into cited and other passages; overlapping ones are shortened, blank ones joined to a neighbour."""
    passages: list[tuple[str, list[Citation]]] = []
    position = 0
    for citation in sorted(cited, key=lambda each: (each.start or 0, each.end or 0)):
        start, end = max((citation.start or 0) - offset, position), (citation.end or 0) - offset
        if end <= position:
            passages[-1][1].append(citation)
            continue
        if start > position:
            _append_passage(passages, text[position:start], [])
        _append_passage(passages, text[start:end], [citation])
        position = end
    _append_passage(passages, text[position:], [])
    for passage, citations in passages:
        yield CitedPassage(passage, tuple(citations)) if citations else Text(passage)


def _append_passage(passages: list[tuple[str, list[Citation]]], text: str, citations: list[Citation]) -> None:
    if passages and not (text.strip() and passages[-1][0].strip()):
        before, cited = passages[-1]
        passages[-1] = (before + text, [*cited, *citations])
    elif text:
        passages.append((text, citations))


Block: TypeAlias = Mapping[str, Any]

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
EMPTY_MESSAGE_TEXT = "(nothing was said)"
"""Placeholder for a user message without content, which would be refused."""
MAX_TOOL_NAME_LENGTH = 64
"""Maximum length of a tool name."""

_THINKING_PLACEHOLDER: Block = {"type": "thinking", "thinking": " ", "signature": ""}
"""Thinking of a turn that has none, for compatible servers that refuse turns without it."""
_THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})
is_call_id = re.compile(r"[A-Za-z0-9_-]+").fullmatch
"""Match the ids of calls that Anthropic accepts. Compatible servers accept the ids that they gave."""
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def build_message_encoder(
    messages: Sequence[Message],
    profile: Profile,
    *,
    echo: bool,
    signed: bool,
    citations: bool = False,
    needs_thinking: bool = False,
) -> Callable[[Message], Sequence[Item]]:
    """Return a function that encodes one message of a conversation for the Messages API (Anthropic).

    Unless `echo`, the model's earlier thinking is left out.

    With it, all thinking is sent back, on turns without calls too: the provider needs the blocks as it wrote them, uses
    what it needs, and would miss its prompt cache if they were left out later. With `citations`, the model is asked to
    cite documents. With `needs_thinking`, a turn of the assistant without thinking gets a placeholder.
    """
    ids = CallIdTranslator(messages, profile, is_valid=is_call_id if signed else bool)

    def encode_message(message: Message) -> Sequence[Item]:
        ids.enter(message)
        if message.role == "assistant":
            own = profile.is_author(message.provider, message.model)
            parts = split_cited_text(message.parts) if message.provider == profile.provider else message.parts
            content = _encode_assistant_parts(parts, ids, own=own, echo=echo, signed=signed)
            if needs_thinking and content and not any(block.get("type") in _THINKING_TYPES for block in content):
                content.insert(0, _THINKING_PLACEHOLDER)
            return [{"role": "assistant", "content": content}] if content else []
        content = [
            block for part in message.parts for block in _encode_user_part(part, profile, ids, citations=citations)
        ]
        return [{"role": "user", "content": content or [_build_text_block(EMPTY_MESSAGE_TEXT)]}]

    return encode_message


def sanitize_tool_name(name: str) -> str:
    """Return a tool name that the provider accepts: invalid characters are replaced, and long names are cut."""
    return _NOT_IN_A_NAME.sub("_", name)[:MAX_TOOL_NAME_LENGTH] or "_"


def list_called_tools(messages: Sequence[Message]) -> list[str]:
    """Return the names of the tools called in these messages, each once, spelled as the provider gets them."""
    names = [sanitize_tool_name(part.name) for each in messages for part in each.parts if type(part) is ToolCall]
    return list(dict.fromkeys(names))


def ensure_json_object(text: str) -> Any:
    """Return the arguments of a tool call as a JSON object; text that is not a JSON object is wrapped in one."""
    try:
        _decode_object(text)
    except (ValueError, RecursionError):
        return {"_raw": text} if text.strip() else {}
    return msgspec.Raw(text.encode())


def _build_text_block(text: str) -> Block:
    return {"type": "text", "text": text}


# -- assistant messages ------------------------------------------------------------------------------------------------


def _encode_assistant_parts(
    parts: Iterable[Part | CitedPassage], ids: CallIdTranslator, *, own: bool, echo: bool, signed: bool
) -> list[Block]:
    content: list[Block] = []
    for part in parts:
        match part:
            case CitedPassage(text=text, citations=cited):
                content.append({**_build_text_block(text), "citations": [_encode_citation(each) for each in cited]})
            case Text(text=text):
                if text.strip():  # blank ones are refused
                    content.append(_build_text_block(text))
            case ToolCall():
                name, given = sanitize_tool_name(part.name), ensure_json_object(part.arguments)
                content.append({"type": "tool_use", "id": ids.encode_id(part.call_id), "name": name, "input": given})
            case Thinking():
                thought = _encode_thinking(part, echo=echo, signed=signed) if own else None
                if thought is not None:
                    content.append(thought)
            case Media():
                content.append(
                    _build_text_block(
                        attachments.describe_unsupported_media(part, "made by the model, and not shown to it again")
                    )
                )
            case ToolResult() | Citation():  # never in an assistant message; of another provider
                pass
    while content and content[-1].get("type") in _THINKING_TYPES:  # refused there; so ends a reply that got too long
        content.pop()
    return content


def _encode_citation(citation: Citation) -> Block:
    """Encode a citation in the form in which the provider sent it, without a null `file_id`, which it refuses."""
    return {name: value for name, value in citation.details.items() if (name, value) != ("file_id", None)}


def _encode_thinking(part: Thinking, *, echo: bool, signed: bool) -> Block | None:
    if "type" in part.details:  # a block of a tool that the provider runs, or of an unknown type
        return part.details
    if not echo:
        return None
    if part.data:
        return {"type": "redacted_thinking", "data": part.data}
    if part.signature or (part.text and not signed):
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    return None


# -- user messages and results -----------------------------------------------------------------------------------------


def _encode_user_part(part: Part, profile: Profile, ids: CallIdTranslator, *, citations: bool) -> Sequence[Block]:
    match part:
        case Text(text=text):
            return [_build_text_block(text)] if text.strip() else []
        case Image() | Document():
            return [_encode_media(part, profile, citations=citations)]
        case Audio() | Video():
            return [_build_text_block(attachments.describe_unsupported_media(part))]
        case ToolResult():
            return [_encode_result(part, profile, ids, citations=citations)]
        case _:  # thinking and calls are never in a user message
            return []


def _encode_result(result: ToolResult, profile: Profile, ids: CallIdTranslator, *, citations: bool) -> Block:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids.encode_id(result.call_id)}
    content = [block for part in result.content for block in _encode_user_part(part, profile, ids, citations=citations)]
    if result.is_error:
        block["is_error"] = True
        content = content or [_build_text_block(f"({result.status})")]  # an empty error is refused
    if content:
        block["content"] = content
    return block


def _encode_media(media: Image | Document, profile: Profile, *, citations: bool) -> Block:
    seen = attachments.normalize_media(media)
    if attachments.is_image(seen):
        source = _build_image_source(seen) if profile.images else None
        return (
            _describe_media(media, seen, able=profile.images) if source is None else {"type": "image", "source": source}
        )
    source = _build_document_source(seen) if profile.documents else None
    if source is not None:
        titled = {"title": seen.name} if seen.name else {}
        asked = {"citations": {"enabled": True}} if citations else {}
        return {"type": "document", "source": source, **titled, **asked}
    text = attachments.decode_text_document(seen)
    if text is not None and text.strip():
        return _build_text_block(f"[document {seen.name}]\n{text}" if seen.name else text)
    return _describe_media(media, seen, able=profile.documents)


def _describe_media(media: Media, seen: Media, *, able: bool) -> Block:
    why = f"this model cannot take {seen.media_type or 'files of an unknown type'}" if able else ""
    return _build_text_block(attachments.describe_unsupported_media(media, why))


def _build_image_source(image: Media) -> Block | None:
    if image.data:
        if image.media_type not in IMAGE_TYPES:
            return None
        return {"type": "base64", "media_type": image.media_type, "data": attachments.encode_base64(image)}
    return _build_remote_source(image)


def _build_document_source(document: Media) -> Block | None:
    if document.data:
        if document.media_type == "application/pdf":
            return {
                "type": "base64",
                "media_type": "application/pdf",
                "data": attachments.encode_base64(document),
            }
        text = attachments.decode_text_document(document)
        return {"type": "text", "media_type": "text/plain", "data": text} if text and text.strip() else None
    if document.url and document.media_type not in {"", "application/pdf"}:
        return None  # the provider fetches nothing else
    return _build_remote_source(document)


def _build_remote_source(media: Media) -> Block | None:
    if media.file_id:
        return {"type": "file", "file_id": media.file_id}
    if media.url.startswith(("https://", "http://")):
        return {"type": "url", "url": media.url}
    return None
