"""What is said, as blocks of this wire. Pure. Above: `encode.py`. Below: `attachment.py`.

Every message becomes one item, and depends on nothing but itself: neighbours of one role are joined by the provider.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

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
)
from perdure.models import attachment
from perdure.models.memo import Item
from perdure.models.profile import Profile

Block: TypeAlias = Mapping[str, Any]

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
NOTHING_SAID = "(nothing was said)"
"""Stands for a message of the user that holds no words, which would be refused."""
MOST_NAME = 64
"""How long the name of a tool may be."""

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_is_object = msgspec.json.Decoder(dict[str, Any]).decode


def items_of(profile: Profile, *, echo: bool, signed: bool) -> Callable[[Message], Sequence[Item]]:
    """How a message is said to this model. Without `echo`, it does not get its own thinking back.

    With it, it gets back all of it, on turns without calls too: the provider wants the blocks as it wrote them, takes
    from them what it needs, and would find another prefix than the one in its cache if they went missing later.
    """

    def items(message: Message) -> Sequence[Item]:
        if message.role == "assistant":
            own = profile.wrote(message.provider, message.model)
            content = _said(message.parts, own=own, echo=echo, signed=signed)
            return [{"role": "assistant", "content": content}] if content else []
        content = [block for part in message.parts for block in _told(part, profile)]
        return [{"role": "user", "content": content or [_text(NOTHING_SAID)]}]

    return items


def tool_name(name: str) -> str:
    """A name that is accepted, whatever the model called the tool."""
    return _NOT_IN_A_NAME.sub("_", name)[:MOST_NAME] or "_"


def arguments(text: str) -> Any:
    """Raw arguments as they are when they are a JSON object, else an object that holds them."""
    try:
        _is_object(text)
    except (ValueError, RecursionError):
        return {"_raw": text} if text.strip() else {}
    return msgspec.Raw(text.encode())


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


# -- what the model said -----------------------------------------------------------------------------------------------


def _said(parts: Sequence[Part], *, own: bool, echo: bool, signed: bool) -> list[Block]:
    content: list[Block] = []
    for part in parts:
        match part:
            case Text(text=text):
                if text.strip():  # blank ones are refused
                    content.append(_text(text))
            case ToolCall():
                name, given = tool_name(part.name), arguments(part.arguments)
                content.append({"type": "tool_use", "id": part.call_id, "name": name, "input": given})
            case Thinking():
                thought = _thought(part, echo=echo, signed=signed) if own else None
                if thought is not None:
                    content.append(thought)
            case Media():
                content.append(_text(attachment.note(part, "made by the model, and not shown to it again")))
            case ToolResult():  # not in a message of the model
                pass
    return content


def _thought(part: Thinking, *, echo: bool, signed: bool) -> Block | None:
    if "type" in part.details:  # a block of a tool that the provider runs, or of a kind that we do not know
        return part.details
    if not echo:
        return None
    if part.data:
        return {"type": "redacted_thinking", "data": part.data}
    if part.signature or (part.text and not signed):
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    return None


# -- what the model is told --------------------------------------------------------------------------------------------


def _told(part: Part, profile: Profile) -> Sequence[Block]:
    match part:
        case Text(text=text):
            return [_text(text)] if text.strip() else []
        case Image() | Document():
            return [_shown(part, profile)]
        case Audio() | Video():
            return [_text(attachment.note(part))]
        case ToolResult():
            return [_result(part, profile)]
        case _:  # thinking and calls are the model's
            return []


def _result(result: ToolResult, profile: Profile) -> Block:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.call_id}
    content = [block for part in result.content for block in _told(part, profile)]
    if result.is_error:
        block["is_error"] = True
        content = content or [_text(f"({result.status})")]  # an error that says nothing is refused
    if content:
        block["content"] = content
    return block


def _shown(media: Image | Document, profile: Profile) -> Block:
    seen = attachment.opened(media)
    if attachment.is_image(seen):
        source = _image_source(seen) if profile.images else None
        return _noted(media, seen, able=profile.images) if source is None else {"type": "image", "source": source}
    source = _document_source(seen) if profile.documents else None
    if source is not None:
        titled = {"title": seen.name} if seen.name else {}
        return {"type": "document", "source": source, **titled}
    text = attachment.words(seen)
    if text is not None and text.strip():
        return _text(f"[document {seen.name}]\n{text}" if seen.name else text)
    return _noted(media, seen, able=profile.documents)


def _noted(media: Media, seen: Media, *, able: bool) -> Block:
    why = f"this model cannot take {seen.media_type or 'files of an unknown type'}" if able else ""
    return _text(attachment.note(media, why))


def _image_source(image: Media) -> Block | None:
    if image.data:
        if image.media_type not in IMAGE_TYPES:
            return None
        return {"type": "base64", "media_type": image.media_type, "data": attachment.in_base64(image)}
    return _elsewhere(image)


def _document_source(document: Media) -> Block | None:
    if document.data:
        if document.media_type == "application/pdf":
            return {"type": "base64", "media_type": "application/pdf", "data": attachment.in_base64(document)}
        text = attachment.words(document)
        return {"type": "text", "media_type": "text/plain", "data": text} if text and text.strip() else None
    if document.url and document.media_type not in {"", "application/pdf"}:
        return None  # nothing else is fetched
    return _elsewhere(document)


def _elsewhere(media: Media) -> Block | None:
    if media.file_id:
        return {"type": "file", "file_id": media.file_id}
    if media.url.startswith(("https://", "http://")):
        return {"type": "url", "url": media.url}
    return None
