"""Chunks that are not as they should be."""

from perdure._models.wires.gemini import chunks as chunk_module
from perdure._models.wires.gemini.chunks import get_raw_parts, parse_chunk


def test_usual_chunks_are_read_at_once(monkeypatch):
    def fail(data):
        raise AssertionError(data)

    monkeypatch.setattr(chunk_module, "parse_json_or_none", fail)
    for part in (
        b'{"text":"hi"}',
        b'{"text":"hi","thought":true,"thoughtSignature":"S"}',
        b'{"functionCall":{"name":"f","args":{"a":1},"id":"k"}}',
        b'{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"x"}],"willContinue":true}}',
        b'{"inlineData":{"mimeType":"image/png","data":"AA=="}}',
        b'{"executableCode":{}}',
    ):
        chunk = parse_chunk(
            b'{"candidates":[{"content":{"parts":[%s]},"finishReason":"STOP","new":1}],"new":{}}' % part
        )
        assert chunk is not None
        assert chunk.candidates
        assert chunk.candidates[0].finish_reason == "STOP"


def test_a_field_of_the_wrong_kind_is_left_out_and_the_rest_is_read():
    chunk = parse_chunk(
        b'{"candidates":[{"content":{"parts":[{"text":3},{"text":"hi","thought":"yes"},"?",{"functionCall":7},'
        b'{"functionCall":{"name":"f","args":[1],"partialArgs":7}}]}},"?"],"usageMetadata":{"promptTokenCount":"12",'
        b'"candidatesTokenCount":{}},"promptFeedback":[]}'
    )
    assert chunk is not None
    assert chunk.candidates
    content = chunk.candidates[0].content
    assert content is not None
    assert content.parts
    assert [part.text for part in content.parts] == [None, "hi", None, None]
    assert content.parts[3].function_call is not None
    assert bytes(content.parts[3].function_call.args) == b"[1]"
    assert chunk.usage_metadata is not None
    assert (chunk.usage_metadata.prompt_token_count, chunk.usage_metadata.candidates_token_count) == (12, None)
    assert chunk.prompt_feedback is None


def test_text_that_cannot_be_encoded_is_cleaned():
    for text in (b"\\ud800", b"\xff"):
        chunk = parse_chunk(b'{"candidates":[{"content":{"parts":[{"text":"a%s"}]}}]}' % text)
        assert chunk is not None
        assert chunk.candidates
        assert chunk.candidates[0].content is not None
        assert chunk.candidates[0].content.parts
        assert chunk.candidates[0].content.parts[0].text == "a\ufffd"


def test_what_is_no_object_is_no_chunk():
    for data in (b"", b"[DONE]", b"{", b"[]", b'"x"', b"null", b"[" * 100_000):
        assert parse_chunk(data) is None


def test_parts_are_found_as_they_came():
    assert get_raw_parts(b'{"candidates":[{"content":{"parts":[{"new":1}]}}]}') == [{"new": 1}]
    assert get_raw_parts(b'{"candidates":[]}') == get_raw_parts(b"?") == []
