"""Encode text and media as the content of messages and tool results of the Responses API. No I/O.

Media that the model cannot take become a text note.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from perdure.core.message import Audio, Document, Image, Media, Part, Text, Video
from perdure.models import attachment_preparation
from perdure.models.encoding_memo import Item
from perdure.models.profile import Profile

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
            shown.append(_encode_media(attachment_preparation.normalize_media(part), profile, dialect))
    return shown


def join_text_items(items: Sequence[Item]) -> str | None:
    """Join text content items into one string; None if there are items other than text."""
    if any(each["type"] != "input_text" for each in items):
        return None
    return "\n".join([str(each["text"]) for each in items])


def _encode_media(media: Media, profile: Profile, dialect: ResponsesDialect) -> Item:
    if not (media.data or media.url or media.file_id):
        return build_input_text(attachment_preparation.describe_unsupported_media(media, "there is nothing in it"))
    if attachment_preparation.is_image(media):
        return (
            _encode_image(media)
            if profile.images
            else build_input_text(attachment_preparation.describe_unsupported_media(media))
        )
    match media:
        case Audio() if profile.audio and media.media_type in _AUDIO_FORMATS and media.data:
            recording = {
                "data": attachment_preparation.encode_base64(media),
                "format": _AUDIO_FORMATS[media.media_type],
            }
            return {"type": "input_audio", "input_audio": recording}
        case Document() if profile.documents:
            return _encode_file(media, dialect)
        case Document() if (words := attachment_preparation.decode_text_document(media)) is not None:
            return build_input_text(f"[document {media.name}]\n{words}" if media.name else words)
        case Video() if profile.video:
            return _encode_file(media, dialect)
        case _:
            return build_input_text(attachment_preparation.describe_unsupported_media(media))


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
        "file_data": attachment_preparation.encode_base64(media),
        "mime_type": media.media_type or "application/pdf",
    }


def _build_data_url(media: Media, fallback: str) -> str:
    return f"data:{media.media_type or fallback};base64,{attachment_preparation.encode_base64(media)}"


def _get_default_file_name(media: Media) -> str:
    """Return a default name for a file: the provider refuses files without one."""
    ending = media.media_type.rpartition("/")[2] or "pdf"
    return f"document.{'txt' if ending == 'plain' else ending}"
