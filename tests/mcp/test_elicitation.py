"""Questions of servers: what is asked, and what is declined."""

import asyncio
from typing import Any

import pytest

from perdure import NotAnswered
from perdure._mcp.client.client import CallDeadline
from perdure._mcp.client.tools import (
    CallElicitationAnswerer,
    ElicitationForm,
    ElicitationLink,
    asks_for_secret,
    build_elicitation_question,
    is_safe_link,
)
from perdure.mcp import McpServer

mcp_types = pytest.importorskip("mcp_types")
pytestmark = pytest.mark.packages("mcp")


@pytest.mark.parametrize("url", ["https://example.com/login?a=b", "http://127.0.0.1:8000/x", "http://localhost/x"])
def test_an_address_of_the_web_may_be_shown(url):
    assert is_safe_link(url)


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://example.com/",
        "https://user@example.com/",
        "https://example.com/$(calc.exe)",
        "https://example.com/`id`",
        'https://example.com/";id',
        "https://exa\u202emple.com/",
        "https:///nowhere",
        "https://[bad/",
        "a b",
    ],
)
def test_other_addresses_are_declined(url):
    assert not is_safe_link(url)


def test_a_form_names_its_server():
    params = mcp_types.ElicitRequestFormParams(
        message="Your\u202e name?", requested_schema={"type": "object", "properties": {"name": {"type": "string"}}}
    )
    asked = build_elicitation_question("git", params)
    assert isinstance(asked, ElicitationForm)
    assert asked.text == "The MCP server 'git' asks: Your name?"
    assert asked.output["properties"] == {"name": {"type": "string"}}
    assert asked.input["schema"] == asked.output


def test_an_address_is_shown_in_full():
    params = mcp_types.ElicitRequestURLParams(message="Log in", url="https://example.com/a", elicitation_id="1")
    asked = build_elicitation_question("git", params)
    assert isinstance(asked, ElicitationLink)
    assert "https://example.com/a" in asked.text
    assert asked.output == {"type": "boolean"}
    assert asked.input["question"] == asked.text


@pytest.mark.parametrize(
    "schema", [{"type": "string"}, {"type": "object", "properties": {"a": {"$ref": "https://x/y"}}}]
)
def test_a_form_that_cannot_be_checked_is_declined(schema):
    params = mcp_types.ElicitRequestFormParams.model_construct(message="x", requested_schema=schema)
    assert build_elicitation_question("git", params) is None


async def test_an_answer_after_the_end_of_the_call_harms_nothing():
    class Client:
        async def call_tool(self, *_, **__):
            return mcp_types.CallToolResult(content=[])

    limit = CallDeadline(McpServer(name="s", command="x"))
    answer = asyncio.get_running_loop().create_future()
    asking = asyncio.ensure_future(limit.wait_for_people(answer))
    assert (await limit.call(Client(), "t", {}, None, None)).content == []  # type: ignore[arg-type]
    answer.set_result("late")
    assert await asking == "late"


class Asked:
    """As much of a context as is asked: it answers in order, one question at a time."""

    run_id = "run_1"

    def __init__(self, *answers):
        self._answers = list(answers)
        self.questions = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.open = 0

    async def ask(self, question):
        self.questions.append(question)
        self.open += 1
        assert self.open == 1, "two questions at once"
        await self.may_answer.wait()
        self.open -= 1
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


FORM = mcp_types.ElicitRequestFormParams(
    message="Your name?", requested_schema={"type": "object", "properties": {"name": {"type": "string"}}}
)
LINK = mcp_types.ElicitRequestURLParams(message="Log in", url="https://example.com/a", elicitation_id="1")


@pytest.mark.parametrize(
    ("params", "answer", "result"),
    [
        (FORM, {"name": "Ann"}, {"action": "accept", "content": {"name": "Ann"}}),
        (FORM, NotAnswered("nobody"), {"action": "cancel"}),
        (LINK, True, {"action": "accept"}),
        (LINK, False, {"action": "decline"}),
        (LINK, NotAnswered("nobody"), {"action": "cancel"}),
    ],
)
async def test_the_answer_of_a_person_is_returned_to_the_server(params, answer, result):
    context = Asked(answer)
    answerer = CallElicitationAnswerer("git", context)  # type: ignore[arg-type]
    assert answerer.run_id == "run_1"
    assert (await answerer.answer(params)).model_dump(exclude_none=True, include={"action", "content"}) == result
    assert context.questions == [build_elicitation_question("git", params)]


async def test_what_cannot_be_asked_is_declined_and_nobody_is_asked():
    context = Asked()
    params = mcp_types.ElicitRequestURLParams(message="Click", url="javascript:alert(1)", elicitation_id="1")
    answerer = CallElicitationAnswerer("git", context)  # type: ignore[arg-type]
    assert (await answerer.answer(params)).action == "decline"
    assert context.questions == []


async def test_questions_of_one_call_are_asked_one_after_the_other():
    context = Asked({"name": "Ann"}, {"name": "Bob"})
    context.may_answer.clear()
    answerer = CallElicitationAnswerer("git", context)  # type: ignore[arg-type]
    both = [asyncio.ensure_future(answerer.answer(FORM)) for _ in range(2)]
    await asyncio.sleep(0)
    context.may_answer.set()
    async with asyncio.timeout(30):
        assert [(await each).content for each in both] == [{"name": "Ann"}, {"name": "Bob"}]
    assert len(context.questions) == 2


@pytest.mark.parametrize("url", ["https://example.com/\x01", "https://exämple.com/", "https://example.com/\x7f", ""])
def test_an_address_with_characters_that_cannot_be_seen_is_declined(url):
    assert not is_safe_link(url)
    params = mcp_types.ElicitRequestURLParams.model_construct(message="x", url=url)
    assert build_elicitation_question("git", params) is None


@pytest.mark.parametrize("url", [7, ["https://example.com"]])
def test_an_address_that_is_no_text_is_declined(url):
    params = mcp_types.ElicitRequestURLParams.model_construct(message="x", url=url)
    assert build_elicitation_question("git", params) is None


@pytest.mark.parametrize(("length", "shown"), [(2_000, 2_000), (2_001, 2_000)])
def test_the_text_of_a_question_has_a_limit(length, shown):
    params = mcp_types.ElicitRequestFormParams(message="x" * length, requested_schema={"type": "object"})
    asked = build_elicitation_question("git", params)
    assert asked == ElicitationForm(f"The MCP server 'git' asks: {'x' * shown}", {"type": "object"})


def form(message="Please fill in.", **fields):
    schema = {"type": "object", "properties": fields}
    asked = build_elicitation_question("s", mcp_types.ElicitRequestFormParams(message=message, requested_schema=schema))
    assert isinstance(asked, ElicitationForm)
    return asked


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "asked",
    [
        lambda: form(password=TEXT),
        lambda: form(userPassword=TEXT),
        lambda: form(api_key=TEXT),
        lambda: form(apiKey=TEXT),
        lambda: form(githubToken=TEXT),
        lambda: form(x={"type": "string", "format": "password"}),
        lambda: form(x={"type": "string", "writeOnly": True}),
        lambda: form(x={"type": "string", "title": "Your PIN"}),
        lambda: form(x={"type": "string", "description": "the one-time code"}),
        lambda: form("Enter your password", answer=TEXT),
        lambda: form("Bitte das Passwort", answer=TEXT),
        lambda: form(x={"type": ["string", "null"], "title": "Secret"}),
        lambda: form(x={"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Secret"}, secret={"anyOf": [TEXT]}),
        lambda: form(account={"type": "object", "properties": {"passphrase": TEXT}}),
        lambda: form(secrets={"type": "array", "items": {"type": "string", "title": "secret"}}),
        lambda: form(secret={}),
    ],
)
def test_a_form_for_a_secret_is_known_by_its_fields_and_its_question(asked):
    assert asks_for_secret(asked())


@pytest.mark.parametrize(
    "asked",
    [
        lambda: form(name=TEXT),
        lambda: form("Your password expires soon. Go on?", agreed={"type": "boolean"}),
        lambda: form(max_tokens={"type": "integer"}),
        lambda: form("I reset your password", email={"type": "string", "format": "email"}),
        lambda: form("Which secret?", kind={"type": "string", "enum": ["a", "b"]}),
        lambda: form(tokenizer=TEXT, passenger=TEXT, pinned=TEXT, compass=TEXT),
    ],
)
def test_other_forms_are_asked(asked):
    assert not asks_for_secret(asked())


async def test_a_form_for_a_password_is_declined_unseen_and_the_person_is_told(caplog):
    class Context:
        run_id = "r"

        async def ask(self, question):
            raise AssertionError(question)

    params = mcp_types.ElicitRequestFormParams(
        message="Log in", requested_schema={"type": "object", "properties": {"password": {"type": "string"}}}
    )
    context: Any = Context()
    answer = await CallElicitationAnswerer("bank", context).answer(params)
    assert (answer.action, answer.content) == ("decline", None)
    assert "MCP server 'bank' asks for a password or another secret in a form, which is declined" in caplog.text
