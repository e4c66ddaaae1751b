"""What is known about a picture or a file before it goes on a wire. Pure. Above: wires. Below: `core/message.py`.

Whatever a model cannot take is told to it in a note, never dropped silently.
"""

import base64
import binascii
from urllib.parse import unquote_to_bytes

from msgspec.structs import replace

from perdure.core.message import Document, Image, Media

_CANNOT = {
    "Image": "look at images",
    "Audio": "listen to recordings",
    "Video": "watch films",
    "Document": "read documents",
}

_BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
_TEXTUAL = frozenset(
    {"application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml"}
)


def note(media: Media, why: str = "") -> str:
    """What stands for something that the model cannot be shown: `[image a.png: this model cannot look at images]`."""
    kind = type(media).__name__
    named = f"{kind.lower()} {media.name or _shown(media.url) or media.file_id}".rstrip()
    return f"[{named}: {why or 'this model cannot ' + _CANNOT.get(kind, 'take this')}]"


def opened(media: Media) -> Media:
    """The same, a `data:` address turned into the bytes that it holds, and the media type that the bytes speak of.

    Providers look into the bytes, and refuse a picture that is not what its label says.
    """
    if media.url.startswith("data:"):
        media = _from_data_url(media)
    told = media.media_type.partition(";")[0].strip().lower()
    seen = _seen_type(media.data) or ("image/jpeg" if told == "image/jpg" else told)
    return media if seen == media.media_type else replace(media, media_type=seen)


def words(document: Media) -> str | None:
    """What a document says that is nothing but text; nothing for any other."""
    told = document.media_type
    if not document.data or not (told.startswith("text/") or told in _TEXTUAL or not told):
        return None
    try:
        return document.data.decode()
    except UnicodeDecodeError:
        return None


def in_base64(media: Media) -> str:
    """The bytes, as JSON can hold them."""
    return base64.b64encode(media.data).decode("ascii")


def is_image(media: Media) -> bool:
    """Whether it is a picture, also one that was given as a document."""
    return isinstance(media, Image) or (isinstance(media, Document) and media.media_type.startswith("image/"))


def _shown(url: str) -> str:
    return "" if url.startswith("data:") else url


def _seen_type(data: bytes) -> str:
    for beginning, media_type in _BEGINNINGS:
        if data.startswith(beginning):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


def _from_data_url(media: Media) -> Media:
    """One that cannot be read is left as it is."""
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
