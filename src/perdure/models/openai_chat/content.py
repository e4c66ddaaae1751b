"""What people, tools and models say, as content of this wire. Pure. Above: `items.py`. Below: `attachment.py`, `core`.

Text alone is a plain string, which every server understands; a list is sent only for what needs one.
"""

from collections.abc import Sequence
from typing import Any

from perdure.core.message import Audio, Document, Image, Media, Part, Text, Video
from perdure.models.attachment import in_base64, is_image, note, opened, words
from perdure.models.profile import Profile

from .dialect import Dialect

EMPTY = "[empty message]"
"""What stands for a message without content, which many refuse."""

_SOUNDS = {
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


def said_by_user(parts: Sequence[Part], profile: Profile, dialect: Dialect) -> str | list[dict[str, Any]]:
    """The content of a user's message."""
    items = [item for part in parts if (item := item_of(part, profile, dialect)) is not None]
    if not items:
        return EMPTY
    if all(item["type"] == "text" for item in items):
        return "\n".join([item["text"] for item in items])
    return items


def item_of(part: Part, profile: Profile, dialect: Dialect) -> dict[str, Any] | None:
    """One element of a list of content; nothing for blank text. What the model cannot take becomes a note."""
    if isinstance(part, Text):
        return text_item(part.text) if part.text.strip() else None
    if not isinstance(part, Media):
        return None
    media = opened(part)
    return shown(media, profile, dialect) or text_item(_in_words(media))


def text_item(text: str) -> dict[str, Any]:
    """Words."""
    return {"type": "text", "text": text}


def shown(media: Media, profile: Profile, dialect: Dialect) -> dict[str, Any] | None:
    """Something to look at or to listen to, if this model can."""
    if is_image(media):
        return _picture(media) if profile.images else None
    match media:
        case Audio() if profile.audio and media.data and media.media_type in _SOUNDS:
            sound = {"data": in_base64(media), "format": _SOUNDS[media.media_type]}
            return {"type": "input_audio", "input_audio": sound}
        case Video() if profile.video and (media.data or media.url):
            return {"type": "video_url", "video_url": {"url": address(media)}}
        case Document() if profile.documents and words(media) is None:
            return _file(media, dialect)
        case _:
            return None


def address(media: Media) -> str:
    """Where it can be fetched; or all of it, as an address."""
    return f"data:{media.media_type};base64,{in_base64(media)}" if media.data else media.url


def _picture(media: Media) -> dict[str, Any] | None:
    if not (media.data or media.url):
        return None
    picture = {"url": address(media)}
    if isinstance(media, Image) and media.detail:
        picture["detail"] = media.detail
    return {"type": "image_url", "image_url": picture}


def _file(media: Media, dialect: Dialect) -> dict[str, Any] | None:
    if media.file_id:
        return {"type": "file", "file": {"file_id": media.file_id}}
    if not (media.data or media.url):
        return None
    if dialect.document_url:
        named = {"document_name": media.name} if media.name else {}
        return {"type": "document_url", "document_url": address(media), **named}
    return {"type": "file", "file": {"filename": media.name or "document", "file_data": address(media)}}


def _in_words(media: Media) -> str:
    """A document that is text says it itself; of anything else we can only say that it was there."""
    text = words(media) if isinstance(media, Document) else None
    if text is None:
        return note(media)
    return f"[document {media.name}]\n{text}" if media.name else text
