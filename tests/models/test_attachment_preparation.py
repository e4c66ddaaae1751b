"""What is known about media before they go on a wire."""

import pytest

from perdure.core.message import Audio, Document, Image, Media, Video
from perdure.models import attachment_preparation


@pytest.mark.parametrize(
    ("media", "note"),
    [
        (Image(name="a.png"), "[image a.png: this model cannot look at images]"),
        (Audio(), "[audio: this model cannot listen to recordings]"),
        (Video(url="https://example.com/v"), "[video https://example.com/v: this model cannot watch films]"),
        (Document(file_id="file_1"), "[document file_1: this model cannot read documents]"),
        (Image(url="data:image/png;base64,AAAA"), "[image: this model cannot look at images]"),
        (Media(), "[media: this model cannot take this]"),
    ],
)
def test_a_note_says_what_it_was_and_why_it_is_not_shown(media: Media, note: str) -> None:
    assert attachment_preparation.describe_unsupported_media(media) == note


def test_a_note_can_have_a_reason_of_its_own() -> None:
    assert attachment_preparation.describe_unsupported_media(Image(name="a"), "too large") == "[image a: too large]"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8", "image/webp"),
        (b"%PDF-1.7", "application/pdf"),
        (b"something else", "image/tiff"),
    ],
)
def test_bytes_say_what_they_are_and_the_label_counts_only_when_they_do_not(data: bytes, media_type: str) -> None:
    assert attachment_preparation.normalize_media(Image(data, media_type="image/tiff; q=1")).media_type == media_type


def test_a_data_address_is_opened() -> None:
    opened = attachment_preparation.normalize_media(Image(url="data:image/jpg;base64,QUJD", name="a"))
    assert (opened.data, opened.url, opened.media_type, opened.name) == (b"ABC", "", "image/jpeg", "a")
    opened = attachment_preparation.normalize_media(Document(url="data:text/plain,a%20b"))
    assert (opened.data, opened.media_type) == (b"a b", "text/plain")


@pytest.mark.parametrize("url", ["data:image/png;base64,?", "data:nothing", "https://example.com/a"])
def test_an_address_that_holds_nothing_stays_an_address(url: str) -> None:
    assert attachment_preparation.normalize_media(Image(url=url)).url == url


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (Document(b"a", media_type="text/csv"), "a"),
        (Document(b"{}", media_type="application/json"), "{}"),
        (Document(b"a"), "a"),
        (Document(b"\xff"), None),
        (Document(b"a", media_type="application/msword"), None),
        (Document(url="https://example.com/a.txt", media_type="text/plain"), None),
    ],
)
def test_words_are_found_in_what_is_nothing_but_text(document: Document, words: str | None) -> None:
    assert attachment_preparation.decode_text_document(document) == words


def test_a_picture_may_come_as_a_document() -> None:
    assert attachment_preparation.is_image(Image())
    assert attachment_preparation.is_image(Document(media_type="image/png"))
    assert not attachment_preparation.is_image(Document(media_type="text/plain"))
    assert attachment_preparation.encode_base64(Image(b"ABC")) == "QUJD"
