"""Messages as contents: whose signatures go back, and what stands for what cannot be said."""

import base64

import pytest

from perdure import (
    Document,
    Image,
    Message,
    Status,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    assistant,
    tool_message,
    user,
)
from perdure._models.wires.gemini.encode import (
    EMPTY_MESSAGE_TEXT,
    PLACEHOLDER_SIGNATURE,
    GeminiMessageEncoder,
    insert_user_turns,
    sanitize_function_name,
)
from perdure._models.wires.message_order import CONTINUE_MESSAGE
from perdure.models import Profile

OLD = Profile(provider="google", model="gemini-2.5-flash")
NEW = Profile(provider="google", model="gemini-3-flash")
CODE = {"executableCode": {"code": "1", "language": "PYTHON"}, "thoughtSignature": "CODE"}


def spoken(*parts: Text | Thinking | ToolCall | Image, by: Profile = OLD) -> Message:
    return Message("assistant", parts, "", by.provider, by.model)


def parts_of(message: Message, profile: Profile = OLD, *, echo: bool = True) -> list:
    items = GeminiMessageEncoder([message], profile, echo=echo).encode_message(message)
    assert len(items) == 1
    return items[0]["parts"]


def test_the_author_gets_everything_back_where_it_was():
    message = spoken(
        Thinking("hm", "T", "", "google", "gemini-2.5-flash"),
        Thinking("well", "", "", "google", "gemini-2.5-flash"),
        Text("a", "A"),
        Text("b"),
        Text("", "E"),
        Text(""),
        Thinking(details={"part": CODE}),
        ToolCall("c1", "f", '{"x":1}', "C"),
        ToolCall("c2", "f"),
    )
    assert parts_of(message) == [
        {"text": "hm", "thought": True, "thoughtSignature": "T"},
        {"text": "well", "thought": True},
        {"text": "a", "thoughtSignature": "A"},
        {"text": "b"},
        {"text": "", "thoughtSignature": "E"},
        CODE,
        {"functionCall": {"id": "c1", "name": "f", "args": {"x": 1}}, "thoughtSignature": "C"},
        {"functionCall": {"id": "c2", "name": "f", "args": {}}},
    ]


def test_without_calls_the_readable_thoughts_stay_here_and_signatures_still_go_back():
    message = spoken(Thinking("hm"), Thinking("", "T"), Text("a", "A"), Thinking(details={"part": CODE}))
    assert parts_of(message) == [
        {"text": "", "thought": True, "thoughtSignature": "T"},
        {"text": "a", "thoughtSignature": "A"},
        CODE,
    ]


@pytest.mark.parametrize(("author", "echo"), [(NEW, True), (OLD, False)])
def test_nobody_else_gets_thoughts_and_signatures(author, echo):
    message = spoken(
        Thinking("secret", "T"),
        Text("a", "A"),
        Text("", "E"),
        Thinking(details={"part": CODE}),
        ToolCall("c1", "f", "{}", "C"),
        by=author,
    )
    assert parts_of(message, OLD, echo=echo) == [
        {"text": "a"},
        {"functionCall": {"id": "c1", "name": "f", "args": {}}},
    ]


def test_a_message_of_nothing_but_foreign_thoughts_is_not_sent():
    assert GeminiMessageEncoder([], OLD).encode_message(spoken(Thinking("hm"), Text(""), by=NEW)) == []


@pytest.mark.parametrize(
    ("signature", "author", "sent"),
    [
        ("C", NEW, "C"),
        ("", NEW, PLACEHOLDER_SIGNATURE),
        ("C", OLD, PLACEHOLDER_SIGNATURE),
        ("", OLD, PLACEHOLDER_SIGNATURE),
    ],
)
def test_the_first_call_of_a_turn_is_always_signed_for_new_models(signature, author, sent):
    message = spoken(Text("a"), ToolCall("c1", "f", "{}", signature), ToolCall("c2", "f"), by=author)
    assert [part.get("thoughtSignature") for part in parts_of(message, NEW)] == [None, sent, None]


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", '"x"', "NaN", "[" * 5_000, "a\ud800b"])
def test_arguments_that_are_no_object_are_kept_in_one(arguments):
    [part] = parts_of(spoken(ToolCall("c1", "f", arguments)))
    assert part["functionCall"]["args"] == {"_raw": arguments.replace("\ud800", "\ufffd")}


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("f", "f"),
        ("a.b:c-d", "a_b_c-d"),
        ("-x", "_-x"),
        ("1st", "_1st"),
        ("", "_"),
        ("with blank\0é", "with_blank_"),
        ("x" * 99, "x" * 64),
    ],
)
def test_a_function_of_any_name_can_be_sent(name, sent):
    assert sanitize_function_name(name) == sent


def test_results_are_objects():
    message = tool_message(
        [
            ToolResult("c1", "f", (Text("one"), Text("two")), render={"never": "sent"}, summary="never"),
            ToolResult("c2", "f", (Text("bad"),), Status.ERROR),
            ToolResult("c3", "f", (), Status.DENIED),
            ToolResult("c4", "f"),
        ]
    )
    assert [part["functionResponse"] for part in parts_of(message)] == [
        {"id": "c1", "name": "f", "response": {"output": "one\ntwo"}},
        {"id": "c2", "name": "f", "response": {"error": "bad"}},
        {"id": "c3", "name": "f", "response": {"error": "The call has ended with the status 'denied'."}},
        {"id": "c4", "name": "f", "response": {"output": ""}},
    ]


def test_pictures_in_results_follow_the_results():
    message = tool_message(
        [
            ToolResult("c1", "look", (Text("see"), Image(b"x", media_type="image/png", name="a.png"))),
            ToolResult("c2", "read", (Document(b"%PDF-", name="b.pdf"),)),
        ]
    )
    results, shown = GeminiMessageEncoder([], OLD).encode_message(message)
    assert [part["functionResponse"]["response"] for part in results["parts"]] == [
        {"output": "see\n[image a.png: shown below]"},
        {"output": "[document b.pdf: this model cannot read documents]"},
    ]
    assert shown == {
        "role": "user",
        "parts": [
            {"text": "[image a.png: from the result of look]"},
            {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(b"x").decode()}},
        ],
    }


def test_a_message_of_tools_without_results_is_not_sent():
    assert GeminiMessageEncoder([], OLD).encode_message(tool_message([])) == []


def test_what_a_user_says_is_never_empty():
    assert parts_of(user("")) == parts_of(Message("user")) == [{"text": EMPTY_MESSAGE_TEXT}]
    assert parts_of(user(["Look:", Image(b"x", media_type="image/png"), ""]))[0] == {"text": "Look:"}
    assert parts_of(user("a\ud800")) == [{"text": "a\ufffd"}]
    assert GeminiMessageEncoder([], OLD).encode_message(Message("system", (Text("Be kind."),))) == [
        {"role": "user", "parts": [{"text": "Be kind."}]}
    ]


def test_a_picture_that_a_model_made_goes_back_to_it_with_its_signature():
    picture = Image(b"x", media_type="image/png", name="a.png")
    message = spoken(picture, Thinking("", "S", details={"of": "the part before"}))
    inline = {"mimeType": "image/png", "data": base64.b64encode(b"x").decode()}
    assert parts_of(message) == [{"inlineData": inline, "thoughtSignature": "S"}]
    assert parts_of(message, NEW) == [{"text": "[image a.png: made by another model]"}]
    assert (
        GeminiMessageEncoder([], OLD).encode_message(spoken(Thinking("", "S", details={"of": "the part before"}))) == []
    )


def test_a_conversation_flows_as_it_is():
    messages = [user("a"), assistant(ToolCall("c", "f")), tool_message([ToolResult("c", "f")])]
    assert insert_user_turns(messages) is messages
    assert insert_user_turns([]) == []


def test_a_user_is_heard_before_every_call_and_at_both_ends():
    called = assistant(ToolCall("c", "f"))
    results = tool_message([ToolResult("c", "f")])
    said = assistant("a")
    assert insert_user_turns([called, results]) == [CONTINUE_MESSAGE, called, results]
    assert insert_user_turns([user("a"), said, said, called, results, said]) == [
        *[user("a"), said, said, CONTINUE_MESSAGE, called, results, said, CONTINUE_MESSAGE]
    ]
