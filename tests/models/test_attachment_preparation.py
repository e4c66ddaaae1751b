"""What is known about media before they go on a wire."""

import pytest

from perdure import Audio, Document, Image, Text, Thinking, Video
from perdure._core.values.message import Media, Part
from perdure._models.wires import attachments


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
    assert attachments.describe_unsupported_media(media) == note


def test_a_note_can_have_a_reason_of_its_own() -> None:
    assert attachments.describe_unsupported_media(Image(name="a"), "too large") == "[image a: too large]"


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
    assert attachments.normalize_media(Image(data, media_type="image/tiff; q=1")).media_type == media_type


def test_a_data_address_is_opened() -> None:
    opened = attachments.normalize_media(Image(url="data:image/jpg;base64,QUJD", name="a"))
    assert (opened.data, opened.url, opened.media_type, opened.name) == (b"ABC", "", "image/jpeg", "a")
    opened = attachments.normalize_media(Document(url="data:text/plain,a%20b"))
    assert (opened.data, opened.media_type) == (b"a b", "text/plain")


@pytest.mark.parametrize("url", ["data:image/png;base64,?", "data:nothing", "https://example.com/a"])
def test_an_address_that_holds_nothing_stays_an_address(url: str) -> None:
    assert attachments.normalize_media(Image(url=url)).url == url


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
    assert attachments.decode_text_document(document) == words


def test_a_picture_may_come_as_a_document() -> None:
    assert attachments.is_image(Image())
    assert attachments.is_image(Document(media_type="image/png"))
    assert not attachments.is_image(Document(media_type="text/plain"))
    assert attachments.encode_base64(Image(b"ABC")) == "QUJD"


@pytest.mark.parametrize(
    ("media_type", "is_text"),
    [
        ("application/json", True),
        ("application/xml", True),
        ("application/yaml", True),
        ("application/x-yaml", True),
        ("application/toml", True),
        ("text/html", True),
        ("application/zip", False),
    ],
)
def test_some_types_of_documents_are_text(media_type: str, is_text: bool) -> None:
    found = attachments.decode_text_document(Document(b"a", media_type=media_type))
    assert found == ("a" if is_text else None)


@pytest.mark.parametrize(
    ("data", "media_type"), [(b"RIFF\0\0\0\0WAVE", "image/x"), (b"XXXX\0\0\0\0WEBP", "image/x"), (b"", "image/x")]
)
def test_bytes_that_only_resemble_a_picture_say_nothing(data: bytes, media_type: str) -> None:
    assert attachments.normalize_media(Image(data, media_type=" Image/X ;a=b")).media_type == media_type


def test_media_that_need_no_change_are_the_same_object() -> None:
    image = Image(b"x", media_type="image/tiff")
    assert attachments.normalize_media(image) is image


def test_a_data_address_keeps_the_type_that_was_given_with_it() -> None:
    opened = attachments.normalize_media(Document(url="data:text/plain;base64,YQ==", media_type="text/csv"))
    assert opened == Document(b"a", media_type="text/csv")


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Text("words"), "words"),
        (Image(name="a.png"), "[image a.png: made by the assistant]"),
        (Thinking("hm"), ""),
    ],
)
def test_the_text_of_a_reply_has_notes_for_media_and_no_thinking(part: Part, text: str) -> None:
    assert attachments.get_assistant_text(part) == text
