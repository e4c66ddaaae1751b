"""Pictures, recordings, films and files as parts, or why not. Above: `contents.py`. Below: `attachment.py`.

Gemini wants to know the type of everything, also of what it fetches itself.
"""

import re
from typing import Any

from perdure.core.message import Audio, Document, Image, Media, Video
from perdure.core.plain import clean
from perdure.models.attachment import in_base64, note, opened, words
from perdure.models.profile import Profile

_LOOKS_AT = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
_READS = re.compile(r"application/pdf|text/.+").fullmatch
_ENDINGS = {
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
"""What a name says about a type, where it is not the usual one."""
_USUAL: dict[type, str] = {
    Image: "image/jpeg",
    Audio: "audio/wav",
    Video: "video/mp4",
    Document: "application/pdf",
}
"""What a thing is when nothing tells."""

_FETCHED = re.compile(r"(?:https?|gs)://.+|files/.+", re.DOTALL).fullmatch
"""Addresses that the provider can read. The name of a file that another provider keeps is none."""


def part_of(media: Media, profile: Profile) -> dict[str, Any] | str:
    """The part that shows it to the model; or, when the model cannot take it, the words that stand for it."""
    media = opened(media)
    if not _is_taken(media, profile):
        text = words(media) if isinstance(media, Document) else None
        return clean(note(media) if text is None else f"[document {media.name}]\n{text}")
    media_type = _media_type(media)
    if isinstance(media, Image) and media_type not in _LOOKS_AT:
        return clean(note(media, f"this model cannot look at {media_type}"))
    if isinstance(media, Document) and not _READS(media_type):
        if words(media) is None:
            return clean(note(media, f"this model cannot read {media_type}"))
        media_type = "text/plain"
    if media.data:
        return {"inlineData": {"mimeType": media_type, "data": in_base64(media)}}
    place = clean(media.url or media.file_id)
    if not _FETCHED(place):
        return clean(note(media, "there is nothing that this model could fetch"))
    return {"fileData": {"mimeType": media_type, "fileUri": place}}


def _is_taken(media: Media, profile: Profile) -> bool:
    match media:
        case Image():
            return profile.images
        case Audio():
            return profile.audio
        case Video():
            return profile.video
        case _:
            return profile.documents


def _media_type(media: Media) -> str:
    if media.media_type:
        return clean(media.media_type)
    if isinstance(media, Document) and words(media) is not None:
        return "text/plain"
    ending = re.search(r"\.(\w+)(?:[?#]|$)", media.name or media.url)
    return _ENDINGS.get(ending[1].lower() if ending else "", _USUAL[type(media)])
