"""A tool that is given credentials, and gives none away."""

import asyncio
import logging
import threading
from typing import Any, cast

import msgspec
import pytest

from perdure import Agent, ConfigError, Permissions, Status, ToolContext, tool
from perdure._credentials.credentialed import RedactingContext
from perdure.events import (
    InboxAdded,
    PermissionDecided,
    QuestionAsked,
    RunEnded,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    ValueKept,
)
from perdure.permissions import MemoryVault, Redactor, Verdict, credentialed
from perdure.testing import Recorder, ScriptedModel, call

KEY = "s3cr3t-value"
VAULT = MemoryVault({"key": KEY, "other": "another-value"})


class Header(msgspec.Struct):
    name: str
    value: str


async def ran(used, *replies, **options):
    recorder = Recorder()
    model = ScriptedModel(*(replies or (call(used.name, value="{{key}}"), "Done.")))
    agent = Agent(model, tools=[used], watchers=[recorder], **options)
    outcome = await agent.session("s").run("Go.")
    assert outcome.status == "done", outcome
    return recorder


def result_of(recorder):
    return recorder.of(ToolFinished)[-1].result


async def test_the_function_gets_the_value_and_nobody_else():
    given = []

    @tool(permission=True, target=lambda arguments: arguments["header"].value)
    def send(header: Header, many: list[str]) -> dict[str, str]:
        given.append((header, many))
        return {"sent": header.value, header.value: "key"}

    asked = []

    def handler(requests):
        asked.extend(requests)
        return [Verdict(allow=True)] * len(requests)

    arguments = {"header": {"name": "X", "value": "Bearer {{key}}"}, "many": ["{{ key }}", "{{other}}"]}
    recorder = await ran(
        credentialed(send, VAULT), call("send", **arguments), "Done.", permission=Permissions(handler=handler)
    )
    assert given == [(Header("X", f"Bearer {KEY}"), [KEY, "another-value"])]
    assert result_of(recorder).text == '{"sent":"Bearer {{key}}","Bearer {{key}}":"key"}'
    assert (asked[0].target, asked[0].arguments) == ("Bearer {{key}}", arguments)
    decided, started = recorder.of(PermissionDecided)[0], recorder.of(ToolStarted)[0]
    assert decided.arguments_hash == started.arguments_hash == asked[0].arguments_hash
    assert KEY not in repr(recorder.entries)


async def test_an_unknown_credential_is_an_error_and_nothing_is_called(caplog):
    called = []

    @tool
    def send(value: str) -> str:
        called.append(value)
        return value

    recorder = await ran(credentialed(send, VAULT), call("send", value="{{key}} {{none}}"), "Done.")
    assert called == []
    assert result_of(recorder).status is Status.ERROR
    assert result_of(recorder).text == "unknown credential 'none', known names are 'key', 'other'"


async def test_a_value_that_is_too_short_is_an_error_that_says_why(caplog):
    class Short:
        def resolve(self, name):
            return "abc"

    @tool
    def send(value: str) -> str:
        return value

    recorder = await ran(credentialed(send, Short()))
    assert "fewer than 4 characters" in result_of(recorder).text
    assert "abc" not in caplog.text


async def test_a_call_without_placeholders_hides_what_was_resolved_before():
    @tool(effect="read")
    def send(value: str) -> str:
        return f"{value} {KEY}"

    used = credentialed(send, VAULT)
    recorder = await ran(used, call("send", value="x"), call("send", value="{{key}}"), call("send", value="y"), "Done.")
    texts = [each.result.text for each in recorder.of(ToolFinished)]
    assert texts == [f"x {KEY}", "{{key}} {{key}}", "y {{key}}"]


async def test_tools_that_share_a_redactor_hide_each_other_s_values():
    @tool(effect="read")
    def send(value: str) -> str:
        return "sent"

    @tool(effect="read")
    def look(value: str) -> str:
        return f"found {KEY}"

    redactor = Redactor()
    tools = [credentialed(each, VAULT, redactor=redactor) for each in (send, look)]
    recorder = Recorder()
    model = ScriptedModel(call("send", value="{{key}}"), call("look", value="x"), "Done.")
    await Agent(model, tools=tools, watchers=[recorder]).run("Go.")
    assert result_of(recorder).text == "found {{key}}"


async def test_an_error_is_told_and_logged_without_the_value(caplog):
    @tool
    def send(value: str) -> str:
        raise ConnectionError(f"refused {value}") from ValueError(value)

    with caplog.at_level(logging.DEBUG):
        recorder = await ran(credentialed(send, VAULT))
    assert result_of(recorder).text == "ConnectionError: refused {{key}}"
    assert "refused {{key}}" in caplog.text
    assert KEY not in caplog.text
    record = next(each for each in caplog.records if each.exc_info)
    error = record.exc_info[1]
    assert (error.__cause__, error.__context__) == (None, None)


@pytest.mark.parametrize("place", range(len(KEY) + 1))
async def test_progress_in_pieces_is_told_without_the_value(place):
    @tool
    def send(value: str, context: ToolContext) -> str:
        for chunk in ("a ", value[:place], value[place:], " b", value[:3]):
            context.emit(chunk)
        context.emit({"sent": value})
        return "sent"

    recorder = await ran(credentialed(send, VAULT))
    told = [each.data for each in recorder.of(ToolProgress)]
    assert "".join(each for each in told if isinstance(each, str)) == "a {{key}} bs3c"
    assert {"sent": "{{key}}"} in told


async def test_an_empty_text_is_progress_and_one_that_is_held_back_is_none():
    @tool
    def send(value: str, context: ToolContext) -> str:
        for chunk in ("", value[:3], "", "x"):
            context.emit(chunk)
        return "sent"

    recorder = await ran(credentialed(send, VAULT))
    assert [each.data for each in recorder.of(ToolProgress)] == ["", "", "s3cx"]


async def test_progress_from_several_threads_is_told_without_the_value():
    @tool
    def send(value: str, context: ToolContext) -> str:
        threads = [threading.Thread(target=context.emit, args=(f"<{value}>",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return "sent"

    recorder = await ran(credentialed(send, VAULT))
    assert "".join(each.data for each in recorder.of(ToolProgress)) == "<{{key}}>" * 8


async def test_what_is_kept_and_asked_has_no_value():
    @tool
    async def send(value: str, context: ToolContext) -> str:
        await context.keep("sent", {"value": value})
        await context.add_to_inbox("delivery", f"with {value}")
        assert context.kept("sent") == {"value": "{{key}}"}
        return await context.ask(f"May I send {value}?")

    recorder = Recorder()
    model = ScriptedModel(call("send", value="{{key}}"), "Done.")
    session = Agent(model, tools=[credentialed(send, VAULT)], watchers=[recorder]).session("s")
    async with asyncio.timeout(30):
        async for event in session.stream("Go."):
            if isinstance(event, QuestionAsked):
                assert event.text == "May I send {{key}}?"
                await session.answer(event.ask_id, "yes")
    assert recorder.of(RunEnded)[0].status == "done"
    assert recorder.of(ValueKept)[0].value == {"value": "{{key}}"}
    assert recorder.of(QuestionAsked)[0].input == {"question": "May I send {{key}}?"}
    assert KEY not in repr(recorder.entries)


async def test_the_context_of_a_call_is_still_one():
    seen: list[object] = []

    @tool
    async def send(value: str, context: ToolContext) -> str:
        seen.append(isinstance(context, ToolContext))
        seen.append((context.session_id, context.name, context.cancelled, context.deps, context.turn))
        context.state["x"] = 1
        return context.call_id

    recorder = await ran(credentialed(send, VAULT), deps="deps")
    assert seen == [True, ("s", "send", False, "deps", 1)]
    assert result_of(recorder).text == result_of(recorder).call_id


async def test_a_cancelled_call_sees_that_it_was():
    left = threading.Event()
    noticed = threading.Event()

    @tool(timeout_seconds=0.05)
    def send(value: str, context: ToolContext) -> str:
        while not context.cancelled and not left.wait(0.005):
            pass
        noticed.set()
        return value

    recorder = await ran(credentialed(send, VAULT))
    assert result_of(recorder).status is Status.TIMED_OUT
    assert await asyncio.to_thread(noticed.wait, 30)


async def test_a_method_gets_its_object_untouched():
    class Ship:
        name = "{{key}}"

        @tool
        def send(self, value: str) -> str:
            assert self.name == "{{key}}"
            return "".join([chr(ord(each) + 1) for each in value])

        quiet = credentialed(send, VAULT)

    for used in (Ship().quiet, credentialed(Ship().send, VAULT)):
        recorder = await ran(used)
        assert result_of(recorder).text == "".join([chr(ord(each) + 1) for each in KEY])


def test_what_cannot_be_wrapped_is_refused():
    @tool
    def send(value: str) -> str:
        return value

    with pytest.raises(ConfigError, match="give a tool"):
        credentialed(lambda: None, VAULT)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give a vault"):
        credentialed(send, {"key": KEY})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a Redactor"):
        credentialed(send, VAULT, redactor=VAULT)  # type: ignore[arg-type]


async def test_a_request_is_added_to_the_inbox_as_the_tool_says_and_without_the_value() -> None:
    @tool
    async def send(value: str, context: ToolContext) -> str:
        await context.add_to_inbox("plain", f"with {value}")
        await context.add_to_inbox("both", value, blocking=True, wake=True)
        await context.add_to_inbox("urgent", "x", wake=True)
        with pytest.raises(ConfigError, match="request"):
            await context.add_to_inbox("wrong", cast("str", 7))
        return "sent"

    recorder = await ran(credentialed(send, VAULT))
    added = [(each.tag, each.request, each.blocking, each.wake) for each in recorder.of(InboxAdded)]
    assert added == [
        ("plain", "with {{key}}", False, False),
        ("both", "{{key}}", True, True),
        ("urgent", "x", False, True),
    ]


def test_what_a_tool_sets_on_its_context_is_set_on_the_one_of_the_call() -> None:
    original: ToolContext[Any] = ToolContext(cast("Any", None), "c", "send")
    redacting = RedactingContext(original, Redactor())
    redacting.question_count = 7
    redacting.cancelled = True
    assert (original.question_count, original.cancelled) == (7, True)
    assert (redacting.question_count, redacting.cancelled) == (7, True)
