"""Prepare images and files for a model: decode them, detect their type, or describe them if it cannot read them.

Media that a model does not support is replaced by a note, never dropped silently.
"""

import base64
import binascii
from urllib.parse import unquote_to_bytes

from msgspec.structs import replace

from perdure._core.values.message import Document, Image, Media, Part, Text

_CANNOT = {
    "Image": "look at images",
    "Audio": "listen to recordings",
    "Video": "watch films",
    "Document": "read documents",
}

_MAGIC_BYTES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
_TEXTUAL = frozenset(
    {"application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml"}
)


def describe_unsupported_media(media: Media, why: str = "") -> str:
    """Return the note that replaces unsupported media: `[image a.png: this model cannot look at images]`."""
    kind = type(media).__name__
    named = f"{kind.lower()} {media.name or _get_printable_url(media.url) or media.file_id}".rstrip()
    return f"[{named}: {why or 'this model cannot ' + _CANNOT.get(kind, 'take this')}]"


def get_assistant_text(part: Part) -> str:
    """Return the text of a part of an assistant message; media become a note, and other parts have no text."""
    if isinstance(part, Text):
        return part.text
    return describe_unsupported_media(part, "made by the assistant") if isinstance(part, Media) else ""


def normalize_media(media: Media) -> Media:
    """Return media with a `data:` URL decoded into bytes, and the media type corrected to match the bytes.

    Providers look at the bytes, and reject an image whose label does not match.
    """
    if media.url.startswith("data:"):
        media = _decode_data_url(media)
    told = media.media_type.partition(";")[0].strip().lower()
    seen = _detect_media_type(media.data) or ("image/jpeg" if told == "image/jpg" else told)
    return media if seen == media.media_type else replace(media, media_type=seen)


def decode_text_document(document: Media) -> str | None:
    """Return the text of a document if it is plain text; `None` for any other document."""
    told = document.media_type
    if not document.data or not (told.startswith("text/") or told in _TEXTUAL or not told):
        return None
    try:
        return document.data.decode()
    except UnicodeDecodeError:
        return None


def encode_base64(media: Media) -> str:
    """Return the bytes of the media as base64 text."""
    return base64.b64encode(media.data).decode("ascii")


def is_image(media: Media) -> bool:
    """Return True if the media is an image, also an image that was given as a document."""
    return isinstance(media, Image) or (isinstance(media, Document) and media.media_type.startswith("image/"))


def _get_printable_url(url: str) -> str:
    return "" if url.startswith("data:") else url


def _detect_media_type(data: bytes) -> str:
    for beginning, media_type in _MAGIC_BYTES:
        if data.startswith(beginning):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


def _decode_data_url(media: Media) -> Media:
    """Decode a `data:` URL into bytes; return the media unchanged if it is invalid."""
    described, comma, content = media.url[5:].partition(",")
    if not comma:
        return media
    media_type = described.removesuffix(";base64")
    data = unquote_to_bytes(content)
    if described.endswith(";base64"):
        try:
            data = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return media
    return replace(media, data=data, url="", media_type=media.media_type or media_type)
