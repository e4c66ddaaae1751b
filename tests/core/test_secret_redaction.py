"""What a family of runs keeps to itself."""

from typing import Any

import msgspec

from perdure import Agent, Extension, ToolContext, tool, user
from perdure._core.log.redaction import RelatedRunsRedaction
from perdure._core.model.wrappers import WrappedModel
from perdure.engines import Run
from perdure.events import Event, TextDelta, ThinkingDelta, ToolProgress
from perdure.models import Model, Request
from perdure.stores import MemoryStore
from perdure.testing import Recorder, ScriptedModel, call, thinking


class Starred:
    """Writes stars for one word."""

    def text(self, text: str) -> str:
        return text.replace("secret", "***")

    def event(self, event: Any) -> Any:
        words = isinstance(event, TextDelta | ThinkingDelta)
        return msgspec.structs.replace(event, text=self.text(event.text)) if words else event

    def value(self, value: Any) -> Any:
        return self.text(value) if isinstance(value, str) else value

    def error(self, error: BaseException) -> BaseException:
        return type(error)(self.text(str(error)))

    def stream(self) -> "Whole":
        return Whole(self)

    def model(self, model: Model) -> Model:
        def stream(request: Request) -> Any:
            told = [user(self.text(each.text)) for each in request.messages]
            return model.stream(msgspec.structs.replace(request, messages=told))

        return WrappedModel(model, stream)


class Whole:
    """Holds everything back until the end."""

    def __init__(self, starred: Starred) -> None:
        self.starred, self.pieces = starred, ""

    def feed(self, chunk: str) -> str:
        self.pieces += chunk
        return ""

    def end(self) -> str:
        rest, self.pieces = self.starred.text(self.pieces), ""
        return rest


def brings_secrets(starred: Starred) -> Extension:
    async def bring(run: Run) -> None:
        run.redaction.redactor = starred

    return Extension(name="secrets", between_turns=[bring])


def test_without_secrets_everything_stays_as_it_is():
    secrecy, event, error = RelatedRunsRedaction(), TextDelta("a secret"), ValueError("a secret")
    assert (secrecy.redact_event(event), secrecy.redact_error(error), secrecy.redact_value("secret")) == (
        event,
        error,
        "secret",
    )


def test_with_secrets_whatever_it_is_given_comes_out_without_them():
    secrecy = RelatedRunsRedaction()
    secrecy.redactor = Starred()
    event: Event = secrecy.redact_event(TextDelta("a secret"))
    assert (event, secrecy.redact_value("secret")) == (TextDelta("a ***"), "***")
    assert str(secrecy.redact_error(ValueError("a secret"))) == "a ***"


async def test_secrets_that_come_while_a_run_goes_on_are_kept_from_its_model_and_its_watchers():
    recorder = Recorder()
    model = ScriptedModel(thinking("secret thoughts", "a secret"), "Fine.")
    agent = Agent(model, watchers=[recorder], extensions=[brings_secrets(Starred())])
    await agent.run("My secret")
    assert [each.text for each in model.requests[0].messages] == ["My ***"]
    assert [each.text for each in recorder.of(TextDelta)] == ["a ***"]
    assert [each.text for each in recorder.of(ThinkingDelta)] == ["*** thoughts"]


async def test_a_child_has_the_secrecy_of_its_parent():
    seen: list[RelatedRunsRedaction] = []

    async def look(run: Run) -> None:
        seen.append(run.redaction)

    spy = Extension(name="spy", between_turns=[look])
    child = Agent(ScriptedModel("Child done."), name="scout", extensions=[spy])
    store = MemoryStore()
    agent = Agent(ScriptedModel(call("scout", task="Go."), "Done."), tools=[child.as_tool()], extensions=[spy])
    session = agent.session("s", store=store)
    await session.run("Go")
    await agent.session("t", store=store).run("Go", model=ScriptedModel("Done."))
    first, *others, other_session = seen
    assert len(others) > 1
    assert all(each is first for each in others)
    assert other_session is not first


async def test_an_error_that_ends_a_run_is_told_without_them():
    async def fails(run: Run) -> None:
        run.redaction.redactor = Starred()
        raise ValueError("a secret")

    agent = Agent(ScriptedModel("Fine."), extensions=[Extension(name="fails", between_turns=[fails])])
    outcome = await agent.run("Go")
    assert str(outcome.error) == "a ***"


async def test_a_secret_in_two_pieces_of_progress_is_not_told():
    @tool
    def tell(context: ToolContext[Any]) -> str:
        """Tell how far it is, in pieces."""
        for piece in ("a sec", "ret", "", {"step": 1}):
            context.emit(piece)
        return "done"

    recorder = Recorder()
    agent = Agent(
        ScriptedModel(call("tell"), call("tell"), "Fine."),
        tools=[tell],
        watchers=[recorder],
        extensions=[brings_secrets(Starred())],
    )
    await agent.run("Go")
    assert [each.data for each in recorder.of(ToolProgress)] == ["", {"step": 1}, "a ***"] * 2


async def test_without_words_there_is_no_rest_to_be_told():
    @tool
    async def tell(context: ToolContext[Any]) -> str:
        """Tell nothing."""
        context.emit("")
        return "done"

    recorder = Recorder()
    agent = Agent(
        ScriptedModel(call("tell"), "Fine."),
        tools=[tell],
        watchers=[recorder],
        extensions=[brings_secrets(Starred())],
    )
    await agent.run("Go")
    assert [each.data for each in recorder.of(ToolProgress)] == [""]
