"""What is not text: shown, or told about."""

import base64

import pytest

from perdure import Audio, Document, Image, Video
from perdure._core.values.message import Media
from perdure._models.wires.gemini.encode import encode_media
from perdure.models import Profile

ALL = Profile(provider="google", model="gemini-2.5-flash", documents=True, audio=True, video=True)
NONE = Profile(provider="google", model="gemma", images=False)
PNG = b"\x89PNG\r\n\x1a\n...."


def inline(media_type: str, data: bytes) -> dict:
    return {"inlineData": {"mimeType": media_type, "data": base64.b64encode(data).decode()}}


@pytest.mark.parametrize(
    ("media", "part"),
    [
        (Image(PNG, media_type="image/png"), inline("image/png", PNG)),
        (Image(PNG), inline("image/png", PNG)),
        (Image(b"...", media_type="image/jpg"), inline("image/jpeg", b"...")),
        (Image(b"...", name="a.webp"), inline("image/webp", b"...")),
        (Image(b"..."), inline("image/jpeg", b"...")),
        (Image(url=f"data:image/png;base64,{base64.b64encode(PNG).decode()}"), inline("image/png", PNG)),
        (Audio(b"abc", media_type="audio/mpeg"), inline("audio/mpeg", b"abc")),
        (Audio(b"abc"), inline("audio/wav", b"abc")),
        (Video(b"abc", name="film.MOV"), inline("video/quicktime", b"abc")),
        (Document(b"%PDF-1.7"), inline("application/pdf", b"%PDF-1.7")),
        (Document(b"words"), inline("text/plain", b"words")),
        (Document(b"{}", media_type="application/json"), inline("text/plain", b"{}")),
        (
            Image(url="https://example.com/a.png?size=1"),
            {"fileData": {"mimeType": "image/png", "fileUri": "https://example.com/a.png?size=1"}},
        ),
        (Document(file_id="files/x1"), {"fileData": {"mimeType": "application/pdf", "fileUri": "files/x1"}}),
    ],
)
def test_a_model_that_takes_everything_is_shown_it_with_its_type(media, part):
    assert encode_media(media, ALL) == part


@pytest.mark.parametrize("media", [Image(PNG), Audio(b"x"), Video(b"x"), Document(b"%PDF-1")])
def test_a_model_that_takes_nothing_is_told(media: Media):
    told = encode_media(media, NONE)
    assert isinstance(told, str)
    assert "this model cannot" in told


@pytest.mark.parametrize(
    ("media", "words"),
    [
        (Image(b"GIF89a"), "this model cannot look at image/gif"),
        (Document(b"PK\xff", media_type="application/zip", name="all.zip"), "[document all.zip: "),
        (Image(), "nothing that this model could fetch"),
        (Image(url="data:nonsense"), "nothing that this model could fetch"),
        (Image(file_id="file-of-another"), "nothing that this model could fetch"),
    ],
)
def test_what_the_provider_refuses_is_told_instead(media, words):
    told = encode_media(media, ALL)
    assert isinstance(told, str)
    assert words in told


def test_a_document_of_nothing_but_text_speaks_for_itself():
    assert encode_media(Document(b"words", name="a.txt"), NONE) == "[document a.txt]\nwords"


def test_a_note_can_always_be_encoded():
    told = encode_media(Image(name="bad \udc00 name"), NONE)
    assert isinstance(told, str)
    assert told.encode()
