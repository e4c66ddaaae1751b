"""Stores, messages, results and permissions, as Glove's reference describes `StoreAdapter`, `Message` and the rest."""

from json import dumps
from typing import Any

from perdure import (
    Agent,
    Document,
    Image,
    Permissions,
    Status,
    Text,
    Thinking,
    ToolCall,
    ToolContext,
    ToolError,
    ToolOutput,
    Video,
    ask,
    deny,
    tool,
    user,
)
from perdure.events import MessageAdded, PermissionDecided
from perdure.models import open_model
from perdure.permissions import Grants, PermissionRequest, Verdict
from perdure.stores import MemoryStore, SessionDocumentStore, derive_subagent_session
from perdure.testing import FakeClock, Recorder, Reply, ScriptedModel, call, check_store
from tests.coming_from.outcomes import present, results_of
from tests.coming_from.shows import shows
from tests.models.canned import CannedTransport

# -- stores ------------------------------------------------------------------------------------------------------------


@shows("glove", "StoreAdapter", "MemoryStore", "StoreAdapter.identifier", "StoreAdapter.getMessages")
async def test_one_store_has_all_sessions_and_its_contract_can_be_checked():
    await check_store(MemoryStore)
    assert isinstance(Agent(ScriptedModel(), store="memory:").store, MemoryStore)
    store = MemoryStore()
    agent = Agent(ScriptedModel("One.", "Two."), store=store)
    for name in ("session-1", "session-2"):
        session = agent.session(name)
        await session.run("Hello")
        assert session.session_id == name
    assert [info.session_id for info in await store.list()] == ["session-2", "session-1"]
    assert [each.text for each in await agent.session("session-1").messages()] == ["Hello", "One."]


class Shelf(dict[str, bytes]):
    """Load, save and delete, as a host program has them."""

    def load(self, session_id: str) -> bytes | None:
        return self.get(session_id)

    def save(self, session_id: str, document: bytes) -> None:
        self[session_id] = document

    def delete(self, session_id: str) -> None:
        self.pop(session_id, None)


@shows("glove", "StoreAdapter")
async def test_a_store_of_ones_own_is_made_of_three_functions():
    shelf = Shelf()
    await Agent(ScriptedModel("One."), store=SessionDocumentStore(shelf)).session("s").run("Hello")
    session = Agent(ScriptedModel(), store=SessionDocumentStore(shelf)).session("s")
    assert [each.text for each in await session.messages()] == ["Hello", "One."]
    await session.delete()
    assert shelf == {}


@tool(effect="read")
async def send_mail(context: ToolContext[Any]) -> str:
    """Send a mail, whose answer comes later."""
    return await context.add_to_inbox("mail", "The answer of Ada.", wake=True)


@shows(
    "glove",
    "StoreAdapter.getInboxItems",
    "StoreAdapter.addInboxItem",
    "StoreAdapter.updateInboxItem",
    "StoreAdapter.getResolvedInboxItems",
    "InboxItem",
    "InboxItem.status",
    'InboxItem."resolved"',
    "InboxItem.response",
    "InboxItem.resolved_at",
)
async def test_items_of_the_inbox_are_added_resolved_once_and_passed_to_the_model():
    clock = FakeClock()
    model = ScriptedModel(call("send_mail"), "Sent.", "Ada agrees.")
    agent = Agent(model, tools=[send_mail], clock=clock)
    session = agent.session("s")
    await session.run("Ask Ada.")
    by_hand = await session.add_to_inbox("job", "The report.", item_id="job-1")
    mail, job = await session.inbox()
    assert (mail.tag, mail.request, mail.status, mail.response) == ("mail", "The answer of Ada.", "pending", None)
    assert (by_hand, job.item_id, job.resolved_at) == ("job-1", "job-1", 0.0)
    await clock.advance(60)
    assert await agent.session("s").resolve(mail.item_id, {"text": "Yes!"})
    assert not await session.resolve(mail.item_id, {"text": "No!"})
    resolved = [each for each in await session.inbox() if each.status == "resolved"]
    assert [(each.item_id, each.response, each.resolved_at) for each in resolved] == [
        (mail.item_id, {"text": "Yes!"}, clock.now())
    ]
    assert present(await session.wake()).text == "Ada agrees."
    assert "Yes!" in str(model.requests[-1].messages)
    assert [each.status for each in await session.inbox()] == ["consumed", "pending"]


@shows("glove", "StoreAdapter.createSubAgentStore")
async def test_a_durable_subagent_keeps_its_history_and_any_other_begins_anew(disk_store):
    for durable in (False, True):
        inner = ScriptedModel("First.", "Second.")
        child = Agent(inner, name="planner", description="Plans.").as_tool(durable=durable)
        outer = ScriptedModel(call("planner", task="One."), "Done.", call("planner", task="Two."), "Done.")
        session = Agent(outer, tools=[child]).session("s")
        await session.run("Go")
        await session.run("Go on")
        assert [len(request.messages) for request in inner.requests] == [1, 3 if durable else 1]
    fresh = [derive_subagent_session(disk_store, "s", "reviewer", durable=False) for _ in range(2)]
    same = [derive_subagent_session(disk_store, "s", "planner", durable=True) for _ in range(2)]
    assert fresh[0].session_id != fresh[1].session_id
    assert same[0].session_id == same[1].session_id
    await Agent(ScriptedModel("Planned.")).session(same[0].session_id, store=same[0].store).run("Plan.")
    again = Agent(ScriptedModel()).session(same[1].session_id, store=same[1].store)
    assert [each.text for each in await again.messages()] == ["Plan.", "Planned."]


# -- messages ----------------------------------------------------------------------------------------------------------


@tool(effect="read")
async def get_weather(city: str) -> str:
    """Get weather for a city."""
    return f"Rain in {city}."


@shows(
    "glove",
    "Message",
    "Message.sender",
    'Message."user"',
    'Message."agent"',
    "Message.id",
    "Message.text",
    "Message.content",
    "Message.tool_results",
    "Message.tool_calls",
    "Message.reasoning_content",
    "ToolCall",
    "ToolCall.tool_name",
    "ToolCall.input_args",
    "ToolCall.id",
    "ToolResult",
    "ToolResult.tool_name",
    "ToolResult.call_id",
    "ToolResult.result",
)
async def test_messages_have_a_sender_parts_calls_results_and_thinking():
    model = ScriptedModel(
        Reply("Let me look.", thinking="Which city?", calls=[ToolCall("a", "get_weather", '{"city": "Oslo"}')]),
        ToolCall("a", "get_weather", "{oops"),
        "Rain.",
    )
    seen = Recorder()
    session = Agent(model, tools=[get_weather], watchers=[seen]).session("s")
    await session.run("Weather?")
    asked, look, results, confused, refused, answer = await session.messages()
    assert [each.role for each in (asked, look, results, answer)] == ["user", "assistant", "tool", "assistant"]
    assert (asked.text, asked.parts, asked.author) == ("Weather?", (Text("Weather?"),), "")
    [made], [result] = look.tool_calls, results.tool_results
    assert (made.name, made.arguments) == ("get_weather", '{"city": "Oslo"}')
    assert (result.name, result.call_id, result.text, result.status) == (
        "get_weather",
        made.call_id,
        "Rain in Oslo.",
        Status.OK,
    )
    assert refused.tool_results[0].is_error
    assert confused.tool_calls[0].arguments == "{oops"
    assert confused.tool_calls[0].call_id not in {"", made.call_id}
    assert look.thinking == "Which city?"
    assert (answer.stop, present(answer.usage).input_tokens) == ("stop", 10)
    assert isinstance(look.parts[0], Thinking)
    assert isinstance(model.requests[1].messages[1].parts[0], Thinking)
    added = [entry for entry in await session.store.read("s") if isinstance(entry.event, MessageAdded)]
    ids = [entry.id for entry in added]
    assert (len(set(ids)), all(ids)) == (len(added), True)


MEDIA = {"images": True, "video": True, "documents": True}
CHAT = (
    b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"A cat."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


@shows(
    "glove",
    "ContentPart",
    "ContentPart.type",
    'ContentPart."text"',
    'ContentPart."image"',
    'ContentPart."video"',
    'ContentPart."document"',
    "ContentPart.text",
    "ContentPart.source",
    "ContentPart.source.type",
    'ContentPart."base64"',
    'ContentPart."url"',
    "ContentPart.source.media_type",
    "ContentPart.source.data",
    "ContentPart.source.url",
    "Message.content",
)
async def test_parts_of_a_message_have_their_kind_and_source_and_are_sent(disk_store):
    transport = CannedTransport(CHAT)
    model = open_model("openrouter:m", api_key="k", transport=transport, profile=MEDIA)
    parts: list[Any] = [
        Text("What is this?"),
        Image(data=b"PNG", media_type="image/png"),
        Image(url="https://example.org/cat.png", media_type="image/png"),
        Video(data=b"MP4", media_type="video/mp4"),
        Document(data=b"PDF", media_type="application/pdf", name="cat.pdf"),
    ]
    session = Agent(model, store=disk_store).session("s")
    await session.run(parts)
    stored = (await session.messages())[0].parts
    assert stored == tuple(parts) == user(parts).parts
    text, inline, linked, video, document = stored
    assert isinstance(text, Text)
    assert text.text == "What is this?"
    assert isinstance(inline, Image)
    assert isinstance(linked, Image)
    assert isinstance(video, Video)
    assert isinstance(document, Document)
    assert (inline.data, inline.url, inline.media_type) == (b"PNG", "", "image/png")
    assert (linked.data, linked.url) == (b"", "https://example.org/cat.png")
    assert (video.media_type, document.media_type) == ("video/mp4", "application/pdf")
    sent = transport.bodies[0]["messages"][-1]["content"]
    assert [each["type"] for each in sent] == ["text", "image_url", "image_url", "video_url", "file"]
    assert sent[1]["image_url"]["url"] == "data:image/png;base64,UE5H"
    assert sent[2]["image_url"]["url"] == "https://example.org/cat.png"


# -- results -----------------------------------------------------------------------------------------------------------


@shows(
    "glove",
    "ToolResultData",
    "ToolResultData.status",
    'ToolResultData."success"',
    'ToolResultData."error"',
    "ToolResultData.data",
    "ToolResultData.message",
    "ToolResultData.renderData",
    "ToolResultData.summary",
    "ToolResultData.generateSummaryArgs",
)
async def test_a_result_has_data_for_the_model_and_for_the_screen_a_status_and_a_summary():
    def describe(result) -> str:
        return f"Read {result.render['path']} ({result.render['lines']} lines)." if result.render else ""

    @tool(effect="read", summary=describe)
    async def read_file(path: str) -> ToolOutput:
        """Read a slice of a file."""
        if path == "missing":
            raise ToolError("there is no such file")
        return ToolOutput("a\nb", render={"path": path, "lines": 2} if path == "a.txt" else None)

    @tool(permission=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel(
        call("read_file", path="a.txt"),
        call("read_file", path="b.txt"),
        call("read_file", path="missing"),
        call("pay"),
        ".",
    )
    outcome = await Agent(model, tools=[read_file, pay]).run("Go")
    read, plain, missing, denied = results_of(outcome)
    assert (read.status, read.text, read.render) == (Status.OK, "a\nb", {"path": "a.txt", "lines": 2})
    assert (read.summary, plain.summary) == ("Read a.txt (2 lines).", "")
    assert (missing.status, missing.text) == (Status.ERROR, "there is no such file")
    assert denied.status is Status.DENIED


@shows("glove", "ToolResultData.renderData")
async def test_data_for_the_screen_is_never_sent_to_a_provider():
    made = {"id": "c1", "index": 0, "type": "function", "function": {"name": "find", "arguments": "{}"}}
    asked = {"id": "1", "choices": [{"index": 0, "delta": {"tool_calls": [made]}, "finish_reason": "tool_calls"}]}
    transport = CannedTransport(f"data: {dumps(asked)}\n\ndata: [DONE]\n\n".encode(), CHAT)

    @tool(effect="read")
    async def find() -> ToolOutput:
        """Find the user."""
        return ToolOutput("found", render={"mail": "ada@example.org"})

    model = open_model("openai-chat:m", api_key="k", transport=transport)
    outcome = await Agent(model, tools=[find]).run("Go")
    assert results_of(outcome)[0].render == {"mail": "ada@example.org"}
    assert transport.bodies[1]["messages"][-1]["content"] == "found"
    assert b"ada@example.org" not in transport.posted[1][2]


# -- permissions -------------------------------------------------------------------------------------------------------


@tool(permission=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@shows(
    "glove",
    "PermissionStatus",
    'PermissionStatus."granted"',
    'PermissionStatus."denied"',
    'PermissionStatus."unset"',
    "StoreAdapter.getPermission",
    "StoreAdapter.setPermission",
)
async def test_a_permission_is_unset_then_granted_or_denied_remembered_and_revoked():
    asked: list[PermissionRequest] = []
    answers = [Verdict(allow=True, scope="session", covers="tool"), Verdict(allow=False, reason="too much")]

    async def handler(requests):
        asked.extend(requests)
        return [answers.pop(0) for _ in requests]

    gate = Permissions(ask("pay"), deny("steal"), handler=handler, grants=Grants())
    seen = Recorder()
    model = ScriptedModel(
        *[call("pay", amount=number) for number in (1, 2)], "Paid.", call("pay", amount=3), "Not paid."
    )
    session = Agent(model, tools=[pay], permission=gate, watchers=[seen]).session("s")
    outcome = await session.run("Pay twice.")
    assert [each.text for each in results_of(outcome)] == ["paid 1", "paid 2"]
    assert [each.arguments for each in asked] == [{"amount": 1}]
    found = present(gate.grants.find(asked[0]))
    assert (found.allow, found.tool, found.scope) == (True, "pay", "session")
    assert present(gate.decide_without_asking(asked[0])).allow
    assert await session.revoke(found.grant_id)
    assert gate.grants.find(asked[0]) is None
    assert gate.decide_without_asking(asked[0]) is None
    denied = await session.run("Pay once more.")
    assert (results_of(denied)[0].status, "too much" in results_of(denied)[0].text) == (Status.DENIED, True)
    assert [(each.allow, each.scope, each.reason) for each in seen.of(PermissionDecided)][-1] == (
        False,
        "once",
        "too much",
    )
    gate.grants.remember(found)
    assert present(gate.decide_without_asking(asked[0])).allow
    assert gate.grants.revoke(found.grant_id)
    assert gate.decide_without_asking(asked[0]) is None


@shows("glove", 'PermissionStatus."denied"')
async def test_an_error_or_a_missing_handler_is_a_denial():
    async def broken(requests):
        raise RuntimeError("the screen is gone")

    for gate in (None, Permissions(ask("pay")), Permissions(ask("pay"), handler=broken)):
        agent = Agent(
            ScriptedModel(call("pay", amount=1), "Not paid."), tools=[pay], permission=gate, interactive=False
        )
        assert results_of(await agent.run("Pay."))[0].status is Status.DENIED
