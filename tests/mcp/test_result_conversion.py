"""Results of MCP tools as parts for the model: media, resources, structured content, and what is left out of them."""

import base64
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import Audio, Document, Image, Text
from perdure._core.schema import checker
from perdure._mcp.client import tools
from perdure._mcp.client.listing import check_tool_list
from perdure._mcp.client.tools import convert_resource, convert_tool_result

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def listed(**more):
    values = {"name": "count", "description": "Count.", "inputSchema": {"type": "object"}, **more}
    return check_tool_list("server", [values]).tools[0]


def convert(*content, structured=None, is_error=False, tool=None):
    result: Any = SimpleNamespace(content=content, structured_content=structured, is_error=is_error)
    return convert_tool_result(tool or listed(), result)


def media(kind, data, media_type):
    return SimpleNamespace(type=kind, data=data, mime_type=media_type)


def test_pictures_and_recordings_are_decoded():
    data = base64.b64encode(b"\x00bytes").decode()
    output = convert(media("image", data, "image/png"), media("audio", data, "audio/wav"))
    assert output.content == [
        Image(data=b"\x00bytes", media_type="image/png"),
        Audio(data=b"\x00bytes", media_type="audio/wav"),
    ]
    blob = SimpleNamespace(uri="file:///a.pdf", blob=data, mime_type="application/pdf")
    assert convert_resource(blob) == [Document(data=b"\x00bytes", media_type="application/pdf")]
    unnamed = SimpleNamespace(uri="file:///a", blob=data, mime_type=None)
    assert convert_resource(unnamed) == [Document(data=b"\x00bytes", media_type="application/octet-stream")]


@pytest.mark.parametrize("data", ["no base64!", "YQ=", "YQ==\nYQ==", "Y*Q=="])
def test_what_is_no_base64_is_left_out_with_a_note(data):
    assert convert(media("image", data, "image/png")).content == [
        Text("[image of type image/png was left out: it is no base64]")
    ]


def test_media_of_the_limit_is_decoded_and_more_is_left_out(monkeypatch):
    monkeypatch.setattr(tools, "MAX_MEDIA_BYTES", 6)
    fits, too_large = "A" * 12, "A" * 16
    assert convert(media("image", fits, "image/png")).content == [Image(data=b"\0" * 9, media_type="image/png")]
    (note,) = convert(media("image", too_large, "image/png")).content
    assert note == Text("[image of type image/png was left out: it is too large]")
    left_out = convert_resource(SimpleNamespace(uri="u", blob=None, mime_type="a/b"))
    assert left_out == [Text("[u of type a/b was left out: it is too large]")]


def test_links_to_resources_and_unknown_kinds_are_described_in_short():
    link = SimpleNamespace(type="resource_link", uri="https://x/" + "y" * 5_000, name="n\x1b" + "m" * 500)
    first, second = convert(link, SimpleNamespace(type="hologram" * 50)).content
    assert first.text.startswith("[resource https://x/yyy")
    assert len(first.text) < 2_300
    assert "\x1b" not in first.text
    assert len(second.text) < 150


def test_structured_content_is_the_text_where_there_is_no_other():
    assert convert(structured={"n": 1}).content == [Text('{"n":1}')]
    said = convert(SimpleNamespace(type="text", text="one"), structured={"n": 1})
    assert (said.content, said.render, said.is_error) == ([Text("one")], {"n": 1}, False)
    assert convert().content == "(no content)"


def test_structured_content_that_breaks_the_schema_of_the_tool_is_an_error_unless_the_tool_has_failed():
    tool = listed(outputSchema=SCHEMA)
    assert not convert(structured={"n": 1}, tool=tool).is_error
    broken = convert(SimpleNamespace(type="text", text="one"), structured={"n": "x"}, tool=tool)
    assert broken.is_error
    assert broken.content[0].text.startswith("[The structured result does not match the tool's schema:")
    assert broken.content[1] == Text("one")
    failed = convert(structured={"n": "x"}, is_error=True, tool=tool)
    assert (failed.is_error, failed.content) == (True, [Text('{"n":"x"}')])
    assert not convert(structured={"n": "x"}).is_error


def test_a_resource_in_a_result_is_its_text_or_its_file() -> None:
    text = SimpleNamespace(uri="a://b", text="inside", blob="aGk=", mime_type="text/plain")
    file = SimpleNamespace(uri="a://b", blob="aGk=", mime_type="image/png")
    content = [SimpleNamespace(type="resource", resource=each) for each in (text, file)]
    assert convert(*content).content == [Text("inside"), Image(data=b"hi", media_type="image/png")]
    assert convert_resource(text) == [Text("inside")]


@pytest.mark.parametrize(("length", "fits"), [(84, True), (88, False)])
def test_the_limit_of_media_is_that_of_their_bytes(length: int, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MAX_MEDIA_BYTES", 60)
    (part,) = convert(media("audio", "A" * length, "audio/wav")).content
    assert isinstance(part, Audio if fits else Text)


def test_the_schema_of_a_tool_is_compiled_for_its_first_result_and_not_for_each(monkeypatch):
    schema = {**SCHEMA, "title": "compiled once"}
    tool = listed(outputSchema=schema)
    assert not convert(structured={"n": 1}, tool=tool).is_error
    monkeypatch.setattr(checker, "_make_validator", pytest.fail)
    assert not convert(structured={"n": 2}, tool=tool).is_error
    assert convert(structured={"n": "x"}, tool=tool).is_error
    listed(outputSchema=dict(schema))


def test_a_large_schema_of_a_tool_is_compiled_when_it_is_listed(monkeypatch):
    large = {f"large{number}": {"type": "integer"} for number in range(600)}
    tool = listed(outputSchema={"type": "object", "properties": large})
    monkeypatch.setattr(checker, "_make_validator", pytest.fail)
    assert convert(structured={"large1": "x"}, tool=tool).is_error
