"""Encode images, audio, video and files as parts of a Gemini message, or as a note if that is not possible.

Gemini requires a media type for everything, including what it fetches itself.
"""

import re
from typing import Any

from perdure.core.jsonable import replace_surrogates
from perdure.core.message import Audio, Document, Image, Media, Video
from perdure.models.attachment_preparation import (
    decode_text_document,
    describe_unsupported_media,
    encode_base64,
    normalize_media,
)
from perdure.models.profile import Profile

_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
_is_readable_type = re.compile(r"application/pdf|text/.+").fullmatch
_TYPES_BY_EXTENSION = {
    "png": "image/png",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "mov": "video/quicktime",
    "webm": "video/webm",
    "txt": "text/plain",
    "md": "text/plain",
    "csv": "text/csv",
    "html": "text/html",
}
"""Media type by file extension, where it is not the usual one."""
_DEFAULT_TYPES: dict[type, str] = {
    Image: "image/jpeg",
    Audio: "audio/wav",
    Video: "video/mp4",
    Document: "application/pdf",
}
"""Default media type of each class."""

_is_fetchable_url = re.compile(r"(?:https?|gs)://.+|files/.+", re.DOTALL).fullmatch
"""Match URLs that the provider can read. The file id of another provider is not one."""


def encode_media(media: Media, profile: Profile) -> dict[str, Any] | str:
    """Encode media as a part of a Gemini message; if the model does not support the media, as a text note.

    That text is the content of a text document, or a note.
    """
    media = normalize_media(media)
    if not _is_supported(media, profile):
        text = decode_text_document(media) if isinstance(media, Document) else None
        return replace_surrogates(
            describe_unsupported_media(media) if text is None else f"[document {media.name}]\n{text}"
        )
    media_type = _get_media_type(media)
    if isinstance(media, Image) and media_type not in _IMAGE_TYPES:
        return replace_surrogates(describe_unsupported_media(media, f"this model cannot look at {media_type}"))
    if isinstance(media, Document) and not _is_readable_type(media_type):
        if decode_text_document(media) is None:
            return replace_surrogates(describe_unsupported_media(media, f"this model cannot read {media_type}"))
        media_type = "text/plain"
    if media.data:
        return {"inlineData": {"mimeType": media_type, "data": encode_base64(media)}}
    place = replace_surrogates(media.url or media.file_id)
    if not _is_fetchable_url(place):
        return replace_surrogates(describe_unsupported_media(media, "there is nothing that this model could fetch"))
    return {"fileData": {"mimeType": media_type, "fileUri": place}}


def _is_supported(media: Media, profile: Profile) -> bool:
    match media:
        case Image():
            return profile.images
        case Audio():
            return profile.audio
        case Video():
            return profile.video
        case _:
            return profile.documents


def _get_media_type(media: Media) -> str:
    if media.media_type:
        return replace_surrogates(media.media_type)
    if isinstance(media, Document) and decode_text_document(media) is not None:
        return "text/plain"
    ending = re.search(r"\.(\w+)(?:[?#]|$)", media.name or media.url)
    return _TYPES_BY_EXTENSION.get(ending[1].lower() if ending else "", _DEFAULT_TYPES[type(media)])
