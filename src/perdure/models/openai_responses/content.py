"""What stands inside messages and results on the Responses wire. Pure. Above: `items.py`. Below: `attachment.py`.

Whatever the model cannot take is told to it in a note.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from perdure.core.message import Audio, Document, Image, Media, Part, Text, Video
from perdure.models import attachment
from perdure.models.memo import Item
from perdure.models.profile import Profile

from .dialect import Dialect

_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}


def input_text(text: str) -> dict[str, Any]:
    """Words that the model reads."""
    return {"type": "input_text", "text": text}


def output_text(text: str) -> dict[str, Any]:
    """Words that the model wrote."""
    return {"type": "output_text", "text": text}


def contents(parts: Iterable[Part], profile: Profile, dialect: Dialect) -> list[Item]:
    """Text and media as they stand in a user's message, or in a result; empty text is left out."""
    shown: list[Item] = []
    for part in parts:
        if isinstance(part, Text):
            if part.text:
                shown.append(input_text(part.text))
        elif isinstance(part, Media):
            shown.append(_media(attachment.opened(part), profile, dialect))
    return shown


def only_words(shown: Sequence[Item]) -> str | None:
    """The contents as one text; nothing when there is more than text in them."""
    if any(each["type"] != "input_text" for each in shown):
        return None
    return "\n".join([str(each["text"]) for each in shown])


def _media(media: Media, profile: Profile, dialect: Dialect) -> Item:
    if not (media.data or media.url or media.file_id):
        return input_text(attachment.note(media, "there is nothing in it"))
    if attachment.is_image(media):
        return _image(media) if profile.images else input_text(attachment.note(media))
    match media:
        case Audio() if profile.audio and media.media_type in _AUDIO_FORMATS and media.data:
            recording = {"data": attachment.in_base64(media), "format": _AUDIO_FORMATS[media.media_type]}
            return {"type": "input_audio", "input_audio": recording}
        case Document() if profile.documents:
            return _file(media, dialect)
        case Document() if (words := attachment.words(media)) is not None:
            return input_text(f"[document {media.name}]\n{words}" if media.name else words)
        case Video() if profile.video:
            return _file(media, dialect)
        case _:
            return input_text(attachment.note(media))


def _image(media: Media) -> Item:
    image: dict[str, Any] = {"type": "input_image"}
    if media.data:
        image["image_url"] = _data_url(media, "image/png")
    elif media.url:
        image["image_url"] = media.url
    else:
        image["file_id"] = media.file_id
    if isinstance(media, Image) and media.detail:
        image["detail"] = media.detail
    return image


def _file(media: Media, dialect: Dialect) -> Item:
    if not media.data:
        return {"type": "input_file", **({"file_url": media.url} if media.url else {"file_id": media.file_id})}
    file: dict[str, Any] = {"type": "input_file", "filename": media.name or _unnamed(media)}
    if dialect.data_urls:
        return {**file, "file_data": _data_url(media, "application/pdf")}
    return {**file, "file_data": attachment.in_base64(media), "mime_type": media.media_type or "application/pdf"}


def _data_url(media: Media, fallback: str) -> str:
    return f"data:{media.media_type or fallback};base64,{attachment.in_base64(media)}"


def _unnamed(media: Media) -> str:
    """A name for a file that has none: the provider takes no file without one."""
    ending = media.media_type.rpartition("/")[2] or "pdf"
    return f"document.{'txt' if ending == 'plain' else ending}"
