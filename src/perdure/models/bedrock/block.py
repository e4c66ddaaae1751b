"""What is said, as blocks of this wire. Pure. Above: `encode.py`. Below: `attachment.py`.

Every message becomes one item and depends on nothing but itself; `encode.py` joins neighbours of one role.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from perdure.core.message import (
    Document,
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
from perdure.models.anthropic.block import NOTHING_SAID, arguments, tool_name
from perdure.models.memo import Item
from perdure.models.profile import Profile

from .dialect import Dialect

Block: TypeAlias = Mapping[str, Any]

SEE_DOCUMENT = "(see the document)"
"""Said with a document that comes without words, which would be refused."""

_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_VIDEOS = {
    "video/mp4": "mp4",
    "video/quicktime": "mov",
    "video/webm": "webm",
    "video/x-matroska": "mkv",
    "video/mpeg": "mpeg",
    "video/x-flv": "flv",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
_NOT_IN_A_TITLE = re.compile(r"[^A-Za-z0-9()\[\]-]+")
_MOST_TITLE = 100


def items_of(profile: Profile, dialect: Dialect, *, echo: bool) -> Callable[[Message], Sequence[Item]]:
    """How a message is said to this model. Without `echo`, it does not get its own thinking back."""

    def items(message: Message) -> Sequence[Item]:
        if message.role == "assistant":
            own = profile.wrote(message.provider, message.model)
            content = _said(message.parts, own=own, echo=echo)
            return [{"role": "assistant", "content": content}] if content else []
        content = [block for part in message.parts for block in _told(part, profile, dialect)]
        return [{"role": "user", "content": _with_words(content)}]

    return items


def _with_words(content: list[Block]) -> list[Block]:
    if not content:
        return [{"text": NOTHING_SAID}]
    if any("document" in block for block in content) and not any("text" in block for block in content):
        return [*content, {"text": SEE_DOCUMENT}]
    return content


# -- what the model said -----------------------------------------------------------------------------------------------


def _said(parts: Sequence[Part], *, own: bool, echo: bool) -> list[Block]:
    content: list[Block] = []
    for part in parts:
        match part:
            case Text(text=text):
                if text.strip():  # blank ones are refused
                    content.append({"text": text})
            case ToolCall():
                name, given = tool_name(part.name), arguments(part.arguments)
                content.append({"toolUse": {"toolUseId": part.call_id, "name": name, "input": given}})
            case Thinking():
                thought = _thought(part, echo=echo) if own else None
                if thought is not None:
                    content.append(thought)
            case Media():
                content.append({"text": attachment.note(part, "made by the model, and not shown to it again")})
            case ToolResult():  # not in a message of the model
                pass
    return content


def _thought(part: Thinking, *, echo: bool) -> Block | None:
    """All that is signed or encrypted goes back, on turns without calls too, as its authors want it. What is neither
    does not: the other makers refuse it.
    """
    if part.details:  # a block of a tool that the provider runs, or of a kind that we do not know
        return part.details
    if not echo:
        return None
    if part.data:
        return {"reasoningContent": {"redactedContent": part.data}}
    if part.signature:
        return {"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}
    return None


# -- what the model is told --------------------------------------------------------------------------------------------


def _told(part: Part, profile: Profile, dialect: Dialect) -> Sequence[Block]:
    match part:
        case Text(text=text):
            return [{"text": text}] if text.strip() else []
        case Media():
            return [_shown(part, profile)]
        case ToolResult():
            return [_result(part, profile, dialect)]
        case _:  # thinking and calls are the model's
            return []


def _result(result: ToolResult, profile: Profile, dialect: Dialect) -> Block:
    content = [block for part in result.content for block in _told(part, profile, dialect)]
    block: dict[str, Any] = {"toolUseId": result.call_id, "content": content}
    if result.is_error and dialect.status:
        block["status"] = "error"
    elif result.is_error:
        content.insert(0, {"text": f"({result.status})"})
    if not content:
        content.append({"text": f"({result.status})" if result.is_error else "(no output)"})
    return {"toolResult": block}


def _shown(media: Media, profile: Profile) -> Block:
    seen = attachment.opened(media)
    if attachment.is_image(seen):
        return _media("image", seen, _IMAGES, able=profile.images) or _noted(media, seen, able=profile.images)
    if isinstance(seen, Video):
        return _media("video", seen, _VIDEOS, able=profile.video) or _noted(media, seen, able=profile.video)
    if not isinstance(seen, Document):
        return _noted(media, seen, able=False)
    return _document(seen, profile) or _noted(media, seen, able=profile.documents)


def _noted(media: Media, seen: Media, *, able: bool) -> Block:
    """Nothing is fetched from an address here."""
    if able and seen.data:
        return {
            "text": attachment.note(media, f"this model cannot take {seen.media_type or 'files of an unknown type'}")
        }
    return {"text": attachment.note(media, "this model cannot be given an address" if able else "")}


def _source(media: Media) -> Block | None:
    if media.data:
        return {"bytes": attachment.in_base64(media)}
    return {"s3Location": {"uri": media.url}} if media.url.startswith("s3://") else None


def _media(kind: str, media: Media, formats: Mapping[str, str], *, able: bool) -> Block | None:
    source, form = _source(media), formats.get(media.media_type)
    return {kind: {"format": form, "source": source}} if able and source and form else None


def _document(document: Document, profile: Profile) -> Block | None:
    words = attachment.words(document)
    form = _DOCUMENTS.get(document.media_type) or ("txt" if words is not None else None)
    source = _source(document)
    if profile.documents and source and form:
        return {"document": {"format": form, "name": title(document), "source": source}}
    if words is not None and words.strip():
        return {"text": f"[document {document.name}]\n{words}" if document.name else words}
    return None


def title(document: Document) -> str:
    """A name of which every character is allowed. `encode.py` makes sure that no other document has it."""
    return _NOT_IN_A_TITLE.sub(" ", document.name).strip()[:_MOST_TITLE].rstrip() or "document"
