"""Fifty secrets, given to tools that leak them in every way and form there is: nothing that is kept or shown has one.

The same is done once more with the fixed switched off: then every sink must have them, or the test would look at the
wrong place.
"""

import asyncio
import logging
import os
import traceback
from collections.abc import Mapping

import click.testing
import msgspec
import pytest

from perdure import Agent, Document, ProviderDown, Text, ToolContext, ToolOutput, tool
from perdure._cli.main import root_command
from perdure._credentials.forms import SecretFormFinder
from perdure.events import TextDelta, ToolProgress
from perdure.people import Showable
from perdure.permissions import MemoryVault, Redactor, credentialed, redacted_model
from perdure.stores import encode_entry, export_session, open_store
from perdure.testing import Recorder, Reply, ScriptedModel, call, calls, replay
from tests.credentials.crowd import leaked
from tests.credentials.shapes import SECRETS, all_fields, forms, hits

AT_ONCE = 25
"""Secrets that are used in one turn."""
MOST_SPLITS = 24
"""Places at which a long value is split; a short one is split at each."""


class Shown(Showable, frozen=True):
    renderer = "shown"
    data: dict


@tool
async def leak(value: str, headers: dict[str, str], context: ToolContext) -> ToolOutput:
    """Give the value away by returning, telling, showing and keeping it in every form."""
    written = forms(value)
    for place in range(0, len(value) + 1, max(1, len(value) // MOST_SPLITS)):
        for chunk in (value[:place], value[place:], " "):
            context.emit(chunk)
    context.emit({"data": written, value: [value]})
    await context.keep("value", {"data": written, value: 1})
    await context.add_to_inbox("approval", f"May I use {value}?")
    slot_id = await context.display.push(Shown({"title": value, "rows": list(written.values())}))
    await context.display.update(slot_id, Shown({"title": value}))
    content = [
        Text("\n".join(written.values())),
        Text(headers["Authorization"]),
        Document(data=value.encode(), name=value),
    ]
    return ToolOutput(content, render={"data": written, value: value}, summary=f"used {value}")


class Declined(Exception):
    def __init__(self, message, answer):
        super().__init__(message)
        self.answer = answer


@tool(effect="read")
def fail(value: str, kind: str) -> str:
    """Give the value away by raising it."""
    try:
        return os.environ[value]
    except KeyError as cause:
        cause.add_note(f"with {value}")
        if kind == "group":
            raise ExceptionGroup(f"both for {value}", [ValueError(value), OSError(2, "no such file", value)]) from cause
        raise Declined(f"{value!r} was declined", {"sent": value}) from cause


@tool(effect="read")
async def data(value: str) -> dict[str, object]:
    """Give the value away as data."""
    return {"sent": value, value: forms(value), "list": [value, {"deep": (value,)}]}


def script(secrets):
    """A model that asks for the tools with every secret, and then repeats the values that a person told it."""
    names = list(secrets)
    replies = []
    for at in range(0, len(names), AT_ONCE):
        group = names[at : at + AT_ONCE]
        marks = [f"{{{{{name}}}}}" for name in group]
        replies.append(calls(*[call("leak", value=m, headers={"Authorization": f"Bearer {m}"}) for m in marks]))
        replies.append(calls(*[call("fail", value=m, kind=kind) for m in marks for kind in ("own", "group")]))
        replies.append(calls(*[call("data", value=m) for m in marks]))
    said = " and ".join(f"The value is {value}" for value in secrets.values())
    return [*replies, Reply(said)]


def told(records):
    """Everything that a handler could get out of log records."""
    formatter = logging.Formatter()
    for record in records:
        yield formatter.format(record)
        yield repr(record.__dict__)
        error = record.exc_info[1] if record.exc_info else None
        while error is not None:
            yield "".join(traceback.format_exception(error)) + repr(vars(error))
            frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
            yield repr([{name: each for name, each in frame.items() if name != "self"} for frame in frames])
            error = error.__cause__ or error.__context__


async def leaked_into(tmp_path, caplog, secrets, place) -> Mapping[str, str | bytes]:
    """What every sink has got, by its name, when the store is of that kind."""
    vault, redactor, recorder = MemoryVault(secrets), Redactor(), Recorder()
    address = {"memory": "memory:", "file": f"file:{tmp_path / 'log'}", "sqlite": f"sqlite:{tmp_path / 'log.db'}"}[
        place
    ]
    store = open_store(address)
    tools = [credentialed(each, vault, redactor=redactor) for each in (leak, fail, data)]
    model = ScriptedModel(*script(secrets), chunk=7)
    agent = Agent(redacted_model(model, redactor), tools=tools, store=store, watchers=[recorder])
    if place != "memory":  # and there, one after the other
        await redactor.resolve_values(vault, secrets)
    session = agent.session("s")
    with caplog.at_level(logging.DEBUG):
        outcome = await session.run("Go.")
    assert outcome.status == "done", outcome.error
    entries = await store.read("s")
    found: dict[str, str | bytes] = {
        "log": b"\n".join(encode_entry(entry) for entry in entries),
        "export": msgspec.json.encode(await export_session(store, "s")),
        "watchers": repr(recorder.entries) + str(recorder),
        "progress": "".join(each.data for each in recorder.of(ToolProgress) if isinstance(each.data, str)),
        "deltas": recorder.text,
        "outcome": all_fields(outcome) + repr(list(outcome.messages)) + outcome.text,
        "requests": repr([list(each.messages) for each in model.requests]),
        "logging": "\n".join(told(caplog.records)),
        "inbox": repr(await session.inbox()),
        "kept": repr(await session.kept("value")),
    }
    changed = Agent(ScriptedModel("Nothing."), tools=tools, store=store, instructions="Other words.")
    again = await replay(agent, "s")
    found["replay"] = (
        str((await replay(changed, "s")).divergence) + repr(again) + str([*map(all_fields, again.outcomes)])
    )
    if place == "sqlite":
        found["search"] = repr(await agent.search("value")) + repr(await agent.search("declined"))
    await store.aclose()
    if place != "memory":
        arguments = ["sessions", "show", "s", "--json", "--store", address]
        shown = await asyncio.to_thread(click.testing.CliRunner().invoke, root_command, arguments)
        assert shown.exit_code == 0, shown.output
        found["command line"] = shown.output
        found["disk"] = b"".join(file.read_bytes() for file in sorted(tmp_path.rglob("*")) if file.is_file())
    return found


@pytest.mark.parametrize("place", ["memory", "file", "sqlite"])
async def test_no_sink_has_any_of_fifty_secrets_in_any_form(tmp_path, caplog, place):
    assert len(SECRETS) == 50
    found = await leaked_into(tmp_path, caplog, SECRETS, place)
    assert {name: leaks for name, text in found.items() if (leaks := hits(text))} == {}
    assert all("{{secret_" in str(text) for name, text in found.items() if name != "replay")


@pytest.mark.parametrize("place", ["file", "sqlite"])
async def test_every_sink_has_them_when_nothing_is_scrubbed(tmp_path, caplog, monkeypatch, place):
    monkeypatch.setattr(SecretFormFinder, "replace_forms", lambda _self, text, **_more: (text, ""))
    few = {name: SECRETS[name] for name in ("secret_0", "secret_11", "secret_20", "secret_36")}
    found = await leaked_into(tmp_path, caplog, few, place)
    assert [name for name, text in found.items() if not hits(text, few)] == []


async def test_an_agent_with_a_vault_shows_and_keeps_none_of_them(caplog):
    """The same by way of the agent, whose events are looked at once more when they are stored and shown."""

    @tool(effect="read")
    async def echo(value: str) -> str:
        """Say it again."""
        return value

    few = {name: SECRETS[name] for name in ("secret_0", "secret_12", "secret_30", "secret_42", "secret_48")}
    recorder = Recorder()
    calls = [call("echo", value=f"{{{{{name}}}}}") for name in few]
    said = " and ".join(few.values())  # by a model that has got hold of them, in small pieces
    model = ScriptedModel(*calls, "Fine.", said, ProviderDown(f"cannot reach {few['secret_0']}"), chunk=3)
    agent = Agent(model, tools=[echo], vault=MemoryVault(few), watchers=[recorder])
    session = agent.session("s")
    await session.run("Go.")
    outcome = await session.run(said)
    failed = await session.run("Once more.")
    deltas = "".join(each.text for each in recorder.of(TextDelta))
    assert hits(deltas, few) == hits(all_fields(failed), few) == hits(caplog.text, few) == []
    assert (failed.status, "{{secret_0}}" in deltas) == ("failed", True)
    log = b"\n".join(encode_entry(entry) for entry in await agent.store.read("s"))
    assert hits(log, few) == hits(repr(recorder.entries), few) == hits(all_fields(outcome), few) == []
    assert hits(repr([list(each.messages) for each in model.requests]), few) == []


async def test_no_sink_of_a_family_of_agents_has_any_of_fifty_secrets(tmp_path, caplog):
    found = await leaked(SECRETS, f"sqlite:{tmp_path / 'log.db'}", caplog)
    found["logging"] = "\n".join(told(caplog.records))
    found["disk"] = b"".join(file.read_bytes() for file in sorted(tmp_path.rglob("*")) if file.is_file())
    assert {name: leaks for name, text in found.items() if (leaks := hits(text))} == {}
    assert [name for name, text in found.items() if "{{secret_" not in str(text)] == []


async def test_every_sink_of_a_family_has_them_when_nothing_is_scrubbed(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(SecretFormFinder, "replace_forms", lambda _self, text, **_more: (text, ""))
    few = {name: SECRETS[name] for name in ("secret_0", "secret_1", "secret_2", "secret_3")}
    found = await leaked(few, f"sqlite:{tmp_path / 'log.db'}", caplog)
    found["logging"] = "\n".join(told(caplog.records))
    assert [name for name, text in found.items() if not hits(text, few)] == []
