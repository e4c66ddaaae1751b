"""Messages as items of the Responses wire."""

import base64
from typing import Any

import pytest

from perdure import (
    Audio,
    Document,
    Image,
    Message,
    Status,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Video,
    assistant,
    tool_message,
    user,
)
from perdure._core.values.message import Part
from perdure._models.endpoint.memo import ProviderRuleError
from perdure._models.wires import attachments
from perdure._models.wires.openai_responses.messages import NO_OUTPUT
from perdure.models import EncodingMemo, Profile
from tests.models.openai_responses.speaking import PROFILE, completed, event, items, reply, stream

PNG = b"\x89PNG\r\n\x1a\nrest"
PDF = b"%PDF-1.4 rest"
BLIND = Profile(provider="openai", model="gpt-9", images=False)
XAI = Profile(provider="xai", model="grok-9", documents=True, dialect="xai")
ANSWER = tool_message([ToolResult("c1", "f", (Text("fine"),))])
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}


def own(*parts: Any, model: str = "gpt-9") -> Message:
    return Message("assistant", parts, "", "openai", model)


def thought(data: str = "secret", **more: Any) -> Thinking:
    return Thinking("Hm.", "", data, "openai", "gpt-9", {**REASONING, **more})


def call(signature: str = "", arguments: str = "{}") -> ToolCall:
    return ToolCall("c1", "f", arguments, signature)


# -- reasoning ---------------------------------------------------------------------------------------------------------


def test_reasoning_comes_back_to_its_author_in_front_of_the_call_that_it_led_to() -> None:
    _, back, called, _ = items([user("go"), own(thought(), call('{"id":"fc_1"}')), ANSWER])
    assert back == {"type": "reasoning", "summary": REASONING["summary"], "encrypted_content": "secret"}
    assert called == {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}


def test_ids_come_back_only_where_the_provider_keeps_the_items() -> None:
    said = own(thought(), Text("ok", '{"id":"msg_1","phase":"commentary"}'), call('{"id":"fc_1"}'))
    kept = items([user("go"), said, ANSWER], extra_body={"store": True})
    assert [item.get("id") for item in kept] == [None, "rs_1", "msg_1", "fc_1", None]
    unkept = items([user("go"), said, ANSWER])
    assert [item.get("id") for item in unkept] == [None] * 5
    assert unkept[2]["phase"] == "commentary"


def test_reasoning_of_another_model_is_dropped_and_its_marks_with_it() -> None:
    said = own(thought(), Text("ok", '{"id":"msg_1","phase":"commentary"}'), call('{"id":"fc_1"}'), model="gpt-8")
    _, words, called, _ = items([user("go"), said, ANSWER], extra_body={"store": True})
    assert words == {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
    assert called == {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}


def test_reasoning_of_a_turn_without_calls_is_left_out_unless_somebody_wants_it() -> None:
    messages = [user("go"), own(thought(), Text("done")), user("thanks")]
    assert [item["type"] for item in items(messages)] == ["message"] * 3
    assert [item["type"] for item in items(messages, echo_reasoning=True)] == ["message", "reasoning", *["message"] * 2]


def test_reasoning_can_be_switched_off() -> None:
    sent = items([user("go"), own(thought(), call()), ANSWER], echo_reasoning=False)
    assert "reasoning" not in [item["type"] for item in sent]


def test_a_turn_with_a_tool_of_the_provider_comes_back_whole() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    said = own(thought(), Thinking(details=search, provider="openai", model="gpt-9"), Text("found"))
    sent = items([user("go"), said, user("thanks")])
    assert [item["type"] for item in sent] == ["message", "reasoning", "web_search_call", "message", "message"]
    assert sent[2] == search


def test_reasoning_of_which_too_little_is_known_is_left_out_with_all_of_its_turn() -> None:
    bare = thought(data="")
    foreign = Thinking("made elsewhere", "", "secret", "openai", "gpt-9")
    for lacking in (bare, foreign):
        sent = items([user("go"), own(lacking, thought(), call()), ANSWER])
        assert [item["type"] for item in sent] == ["message", "function_call", "function_call_output"]


def test_reasoning_in_the_open_comes_back_as_it_is() -> None:
    told = {"content": [{"type": "reasoning_text", "text": "Hm."}]}
    _, back, *_ = items([user("go"), own(thought("", **told), call()), ANSWER])
    assert back["content"] == told["content"]


def test_reasoning_that_nothing_follows_is_left_out() -> None:
    sent = items([user("go"), own(thought()), user("well?")], echo_reasoning=True)
    assert [item["type"] for item in sent] == ["message", "message"]


# -- calls and results -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        ('{"a": ', '{"_raw":"{\\"a\\": "}'),
        ("[1]", '{"_raw":"[1]"}'),
        ("null", '{"_raw":"null"}'),
    ],
)
def test_arguments_are_sent_as_they_are_or_inside_an_object(written: str, sent: str) -> None:
    _, called, _ = items([user("go"), own(call(arguments=written)), ANSWER])
    assert called["arguments"] == sent


def test_a_call_of_free_text_comes_back_as_one_and_so_does_its_result() -> None:
    written = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "run", "input": "print(1)"}
    said = reply(stream(event("output_item.done", item=written), completed()))
    messages = [user("go"), said, tool_message([ToolResult("c1", "run", (Text("1"),))])]
    _, called, result = items(messages)
    assert called == {"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "print(1)"}
    assert result == {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"}
    foreign = items(messages, Profile(provider="openai", model="gpt-8"))
    assert [item["type"] for item in foreign[1:]] == ["function_call", "function_call_output"]


def test_a_result_that_is_encoded_later_than_its_call_still_knows_what_it_answers() -> None:
    memo = EncodingMemo()
    said = own(call('{"type":"custom_tool_call"}', "x"))
    first = [user("go"), said, ANSWER]
    second = [first[0], said, tool_message([ToolResult("c1", "f", (Text("changed"),))])]
    for messages in (first, second):
        assert items(messages, memo=memo, session_id="s")[2]["type"] == "custom_tool_call_output"


def test_a_failed_result_says_that_it_failed() -> None:
    failed = tool_message([ToolResult("c1", "f", (Text("no such file"),), Status.TIMED_OUT)])
    assert items([user("go"), own(call()), failed])[2]["output"] == "[timed_out]\nno such file"


def test_an_empty_result_says_that_it_is_empty() -> None:
    assert items([user("go"), own(call()), tool_message([ToolResult("c1", "f")])])[2]["output"] == NO_OUTPUT


def test_a_picture_in_a_result_is_shown_there() -> None:
    shown = tool_message([ToolResult("c1", "f", (Text("look"), Image(data=PNG)))])
    output = items([user("go"), own(call()), shown])[2]["output"]
    assert [part["type"] for part in output] == ["input_text", "input_image"]


def test_a_picture_in_a_result_follows_it_where_results_are_text() -> None:
    shown = tool_message([ToolResult("c1", "f", (Image(data=PNG),))])
    said = Message("assistant", (call(),), "", "xai", "grok-9")
    _, _, result, following = items([user("go"), said, shown], XAI)
    assert result["output"] == "(see the attachments)"
    assert following["role"] == "user"
    assert [part["type"] for part in following["content"]] == ["input_text", "input_image"]


# -- what people say ---------------------------------------------------------------------------------------------------


def test_a_message_of_the_system_has_the_role_that_the_provider_knows() -> None:
    messages = [Message("system", (Text("Be kind."),)), user("hi")]
    assert items(messages)[0]["role"] == "system"
    assert items(messages, Profile(provider="codex", model="m", dialect="codex"))[0]["role"] == "developer"


def test_empty_text_is_never_sent() -> None:
    sent = items([user("hi"), assistant(""), user(["", "there"]), Message("user")])
    assert [len(item["content"]) for item in sent] == [1, 1]


def test_a_conversation_of_nothing_is_not_sent() -> None:
    with pytest.raises(ProviderRuleError, match="the conversation is empty"):
        items([user("")])


@pytest.mark.parametrize(
    ("media", "sent"),
    [
        (
            Image(data=PNG, detail="low"),
            {
                "type": "input_image",
                "image_url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}",
                "detail": "low",
            },
        ),
        (Image(url="https://example.com/a.png"), {"type": "input_image", "image_url": "https://example.com/a.png"}),
        (Image(file_id="file_1"), {"type": "input_image", "file_id": "file_1"}),
        (
            Document(data=PDF),
            {
                "type": "input_file",
                "filename": "document.pdf",
                "file_data": f"data:application/pdf;base64,{base64.b64encode(PDF).decode()}",
            },
        ),
        (
            Document(data=b"words", media_type="text/plain", name="a.txt"),
            {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,d29yZHM="},
        ),
        (Document(url="https://example.com/a.pdf"), {"type": "input_file", "file_url": "https://example.com/a.pdf"}),
        (Document(file_id="file_2"), {"type": "input_file", "file_id": "file_2"}),
    ],
)
def test_pictures_and_files_are_sent_as_they_were_given(media: Any, sent: dict[str, Any]) -> None:
    assert items([user([media])])[0]["content"] == [sent]


def test_a_file_is_sent_bare_where_the_provider_wants_that() -> None:
    (file,) = items([user([Document(data=PDF, name="a.pdf")])], XAI)[0]["content"]
    assert (file["file_data"], file["mime_type"]) == (base64.b64encode(PDF).decode(), "application/pdf")


@pytest.mark.parametrize(
    "media",
    [
        Image(data=PNG, name="a.png"),
        Document(data=PDF, name="a.pdf"),
        Audio(data=b"x", media_type="audio/wav", name="a.wav"),
        Video(url="https://example.com/a.mp4"),
    ],
)
def test_what_a_model_cannot_take_is_told_to_it(media: Any) -> None:
    told = attachments.describe_unsupported_media(attachments.normalize_media(media))
    assert "cannot" in told
    assert items([user([media])], BLIND)[0]["content"] == [{"type": "input_text", "text": told}]


def test_a_picture_with_nothing_in_it_is_told_of() -> None:
    (told,) = items([user([Image(name="gone.png")])])[0]["content"]
    assert told["text"] == "[image gone.png: there is nothing in it]"


def test_a_document_of_plain_words_is_read_to_a_model_that_takes_no_documents() -> None:
    named, nameless = Document(data=b"words", media_type="text/plain", name="a.txt"), Document(data=b"words")
    told = items([user([named, nameless])], BLIND)[0]["content"]
    assert [each["text"] for each in told] == ["[document a.txt]\nwords", "words"]


def test_sound_and_film_are_sent_to_a_model_that_takes_them() -> None:
    profile = Profile(provider="p", model="m", audio=True, video=True)
    shown: list[Part] = [Audio(data=b"x", media_type="audio/mpeg"), Video(url="https://example.com/a")]
    sound, film = items([user(shown)], profile)[0]["content"]
    assert sound == {"type": "input_audio", "input_audio": {"data": "eA==", "format": "mp3"}}
    assert film == {"type": "input_file", "file_url": "https://example.com/a"}


def test_a_picture_that_a_model_made_is_told_of() -> None:
    sent = items([user("draw"), assistant([Image(data=PNG, name="b.png")]), user("thanks")])
    assert sent[1]["content"] == [{"type": "output_text", "text": "[image b.png: not shown again]"}]


def test_a_signature_of_another_wire_means_nothing_here() -> None:
    sent = items([user("hi"), own(Text("ok", "CAESabc"), Text("ok", "{torn")), user("well")])
    assert sent[1].keys() == sent[2].keys() == {"type", "role", "content"}
    assert PROFILE.is_author("openai", "gpt-9")


def test_a_result_that_follows_the_first_message_of_all_finds_its_call_too() -> None:
    memo = EncodingMemo()
    said = own(call('{"type":"custom_tool_call"}', "x"))
    for answer in (ANSWER, tool_message([ToolResult("c1", "f", (Text("changed"),))])):
        assert items([said, answer], memo=memo, session_id="s")[1]["type"] == "custom_tool_call_output"


def test_decisions_about_calls_of_the_provider_stand_among_the_results_in_their_order() -> None:
    ask = '{"type":"mcp_approval_request","id":"%s","name":"look","server_label":"wiki"}'
    calls = [ToolCall("a1", "look", "{}", ask % "r1"), ToolCall("a2", "look", "{}", ask % "r2"), call()]
    results = [
        ToolResult("a1", "look", (Text("yes"),)),
        ToolResult("a2", "look", (Text("not now"),), Status.DENIED),
        ToolResult("c1", "f", (Text("fine"),)),
    ]
    assert items([user("go"), own(*calls), tool_message(results)])[-3:] == [
        {"type": "mcp_approval_response", "approval_request_id": "r1", "approve": True},
        {"type": "mcp_approval_response", "approval_request_id": "r2", "approve": False, "reason": "not now"},
        {"type": "function_call_output", "call_id": "c1", "output": "fine"},
    ]
