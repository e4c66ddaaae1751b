"""A family of agents that give everything away: one that is asked first, one that it calls, one that works for it in
the background, one that it hands the conversation to; each with secrets of its own, in one session and two processes.
"""

import asyncio
import logging
from typing import Any

from perdure import Agent, ProviderDown, ToolContext, tool
from perdure.events import SlotOpened, TextDelta, ToolProgress
from perdure.people import Showable
from perdure.stores import encode_entry, open_store
from perdure.testing import Recorder, ScriptedModel, call
from perdure.tools import delegation
from tests.credentials.shapes import all_fields

SECONDS = 20.0
GROUPS = ("first", "called", "behind", "second")
"""Whose secrets they are."""


class Far:
    """A vault that cannot be listed: what was handed out before is found by the log alone."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    async def resolve(self, name: str) -> str | None:
        return self.values.get(name)


class Shown(Showable, frozen=True):
    renderer = "shown"
    data: dict[str, Any]


class Crowd:
    """The agents of one process, and what was told to each of their models."""

    def __init__(self, secrets: dict[str, str], address: str, scripts: dict[str, list[Any]]) -> None:
        names = list(secrets)
        self.shares = {
            group: {name: secrets[name] for name in names[place :: len(GROUPS)]} for place, group in enumerate(GROUPS)
        }
        self.recorder, self.store = Recorder(), open_store(address)
        self.models = {group: ScriptedModel(*scripts.get(group, ()), chunk=7) for group in GROUPS}
        called, behind, second = [self._agent(group) for group in GROUPS[1:]]
        self.agent = self._agent(
            "first",
            tools=[*self._tools(), called.as_tool()],
            extensions=[delegation([behind])],
            handoffs=[second.replace(tools=[*self._tools(), called.as_tool()])],
            store=self.store,
            watchers=[self.recorder],
        )
        self.session = self.agent.session("s")

    def words(self, *groups: str) -> str:
        """All that these are to keep to themselves."""
        return "\n".join(value for group in groups for value in self.shares[group].values())

    def _agent(self, group: str, **more: Any) -> Agent[Any]:
        options = {"tools": self._tools(), "name": group, "vault": Far(self.shares[group]), **more}
        return Agent(self.models[group], **options)

    def _tools(self) -> list[Any]:
        @tool(effect="read")
        async def use(values: list[str]) -> str:
            """Use values, and say which."""
            return "\n".join(values)

        @tool
        async def blurt(groups: list[str], context: ToolContext[Any]) -> list[str]:
            """Give everything away by telling, keeping, showing and returning it."""
            words = self.words(*groups)
            for place in range(0, len(words), 9):
                context.emit(words[place : place + 9])
            context.emit({"data": words})
            await context.keep("words", {"data": words})
            await context.add_to_inbox("approval", words)
            await context.display.push(Shown({"words": words}))
            return words.splitlines()

        @tool(effect="read")
        async def fail(groups: list[str]) -> str:
            """Give everything away by raising it."""
            raise ValueError(self.words(*groups))

        @tool(asks_first=True)
        async def ask(groups: list[str], context: ToolContext[Any]) -> str:
            """Give everything away by asking about it."""
            return await context.ask(f"May I use this? {self.words(*groups)}")

        return [use, blurt, fail, ask]


def leaking(group: str, shares: dict[str, Any], *known: str) -> list[Any]:
    """How an agent uses its own secrets, and then gives away those of all who came before."""
    marks = [f"{{{{{name}}}}}" for name in shares[group]]
    return [call("use", values=marks), call("blurt", groups=list(known)), call("fail", groups=list(known))]


async def leaked(secrets: dict[str, str], address: str, caplog: Any) -> dict[str, Any]:
    """What every sink has got, by its name."""
    shares = Crowd(secrets, "memory:", {}).shares
    far = call("delegate", agent="behind", task="Go with {{token}}.", background=True)
    crowd = Crowd(
        secrets,
        address,
        {
            "first": [
                *leaking("first", shares, "first"),
                *[call("called", task="Go with {{token}}."), far, call("wait_for_agents")],
                *[
                    call("blurt", groups=["first", "called", "behind"]),
                    call("hand_over_to_second", message="{{token}}"),
                ],
            ],
            "called": [*leaking("called", shares, "first", "called"), "Done."],
            "behind": [*leaking("behind", shares, "first", "called", "behind"), "Done."],
            "second": [
                *leaking("second", shares, *GROUPS),
                call("ask", groups=list(GROUPS)),
                "\n".join(secrets.values()),
                "Fine.",
                ProviderDown("\n".join(secrets.values())),
            ],
        },
    )
    found: dict[str, Any] = {}
    with caplog.at_level(logging.DEBUG):
        async with asyncio.timeout(SECONDS):
            found |= await _in_one_process(crowd)
    found["log"] = await _log(crowd, "s")
    (behind,) = [each.session_id for each in await crowd.store.list() if each.session_id != "s"]
    found["log in the background"] = await _log(crowd, behind)
    found |= {f"requests of {group}": _requests(model) for group, model in crowd.models.items()}
    await crowd.store.aclose()
    async with asyncio.timeout(SECONDS):
        found |= await _in_another(secrets, address)
    return found


async def _in_one_process(crowd: Crowd) -> dict[str, Any]:
    session, everything = crowd.session, crowd.words(*GROUPS)
    waiting = await session.run("Go.")
    assert waiting.status == "waiting", waiting
    (question,) = await session.questions()
    await session.answer(question.ask_id, f"Yes, use {everything}")
    await session.follow_up(everything)
    posts = await crowd.store.posts("s")
    said = await session.resume()
    assert said.status == "done", said
    failed = await session.run(everything)
    recorder = crowd.recorder
    return {
        "questions": repr(question) + repr(waiting.questions),
        "posts": repr(posts),
        "outcome": all_fields(said) + repr(list(said.messages)),
        "failure": repr(failed.error),
        "deltas": "".join(each.text for each in recorder.of(TextDelta)),
        "progress": "".join(each.data for each in recorder.of(ToolProgress) if isinstance(each.data, str)),
        "slots": repr(recorder.of(SlotOpened)),
        "watchers": repr(recorder.entries),
        "kept": repr(await session.kept("words")),
        "inbox": repr(await session.inbox()),
    }


async def _in_another(secrets: dict[str, str], address: str) -> dict[str, Any]:
    """The log alone says what was asked for. Who has to be called again to be known is called first."""
    known = [group for group in GROUPS if group != "behind"]
    replies = [
        call("blurt", groups=["first", "second"]),
        call("called", task="Go."),
        call("blurt", groups=known),
        "Ok.",
    ]
    crowd = Crowd(secrets, address, {"second": replies, "called": [call("blurt", groups=known), "Ok."]})
    outcome = await crowd.session.run("Go on.")
    assert outcome.status == "done", outcome
    found = {
        "log of a later process": await _log(crowd, "s"),
        "requests of a later process": _requests(crowd.models["second"]) + _requests(crowd.models["called"]),
        "watchers of a later process": repr(crowd.recorder.entries),
    }
    await crowd.store.aclose()
    return found


async def _log(crowd: Crowd, session_id: str) -> bytes:
    return b"\n".join([encode_entry(entry) for entry in await crowd.store.read(session_id)])


def _requests(model: ScriptedModel) -> str:
    return repr([list(each.messages) for each in model.requests])
