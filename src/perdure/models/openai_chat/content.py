"""Encode text and media as the content of chat completions messages. No I/O.

Text alone is sent as a plain string, which every server understands; a list is sent only if it contains media.
"""

from collections.abc import Sequence
from typing import Any

from perdure.core.message import Audio, Document, Image, Media, Part, Text, Video
from perdure.models.attachment_preparation import (
    decode_text_document,
    describe_unsupported_media,
    encode_base64,
    is_image,
    normalize_media,
)
from perdure.models.profile import Profile

from .dialect import ChatDialect

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
