"""A run over a made-up conversation, and models that sum it up: what the tests of compaction share."""

from collections.abc import Iterable
from typing import Any

import msgspec

from perdure import Message, RunOptions, Text, Tool, Toolbox, ToolCall, ToolResult, Usage, assistant, user
from perdure._core.log.store import Log
from perdure.engines import SYSTEM_CLOCK, Mailbox, Run, RunPlace, RunSpec, State, fold_entries
from perdure.events import Event, Fanout, MessageAdded, ModelRequested, RunStarted, ToolFinished
from perdure.models import Request
from perdure.stores import MemoryStore
from perdure.testing import Reply, ScriptedModel

SNAPSHOT = "## Goal\nMoor the boat.\n## Next steps\nFind a berth."


def model_of(*replies: Any, window: int | None = None, **options: Any) -> ScriptedModel:
    """A scripted model whose window is known."""
    model = ScriptedModel(*replies, **options)
    model.info = msgspec.structs.replace(model.info, context_tokens=window)
    return model


def summing_up(snapshot: str = SNAPSHOT, window: int | None = None) -> ScriptedModel:
    """A model that answers everything with a snapshot."""
    return model_of(Reply(snapshot, usage=Usage(100, 20)), window=window, repeat_last=True)


def is_for_summary(request: Request) -> bool:
    """Whether a request asks for a snapshot."""
    return request.instructions.startswith("You keep the state of a piece of work")


class Conversation:
    """A session of one run in a store of its own, into which a test puts whatever it likes."""

    def __init__(
        self, model: ScriptedModel | None = None, tools: Iterable[Tool[..., Any]] = (), **options: Any
    ) -> None:
        self.model = model or summing_up()
        self.store = MemoryStore()
        self.state = State()
        self.shown: list[Event] = []
        self._tools = list(tools)
        self._options = options
        self._calls = 0

    async def begin(self, prompt: str = "Please moor the boat.") -> Run:
        """Open it with a prompt."""
        log = Log(self.store, await self.store.acquire("boat"), 0, SYSTEM_CLOCK)
        self.run = self._run(log, Fanout(SYSTEM_CLOCK))
        await self.run.emit(RunStarted(run_id="r1"), MessageAdded(user(prompt), run_id="r1"))
        return self.run

    def _run(self, log: Log, fanout: Fanout) -> Run:
        names = {*RunOptions.__struct_fields__}
        given = {name: value for name, value in self._options.items() if name in names}
        rest = {name: value for name, value in self._options.items() if name not in names}
        spec = RunSpec(
            options=RunOptions(**given),
            _model=self.model,
            toolbox=Toolbox(self._tools),
            seal_decision=lambda decision, _: decision,
            **rest,
        )
        place = RunPlace(session_id="boat", run_id="r1", log=log, fanout=fanout, mailbox=Mailbox())
        return Run(spec, place, self.state)

    async def says(self, text: str, origin: str = "", **metadata: Any) -> None:
        """Somebody says something."""
        await self.run.emit(MessageAdded(user(text, origin=origin, metadata=metadata), run_id="r1"))

    async def answers(self, text: str, usage: Usage | None = None) -> None:
        """The model answers."""
        await self._requested()
        await self.run.emit(MessageAdded(assistant(text, usage=usage), run_id="r1"))

    async def calls(self, *made: tuple[str, str, str], usage: Usage | None = None, settle: bool = True) -> None:
        """The model calls tools: name, arguments, and what each of them returns."""
        await self._requested()
        numbers = range(self._calls, self._calls + len(made))
        self._calls += len(made)
        asked = [
            ToolCall(f"c{number}", name, arguments) for number, (name, arguments, _) in zip(numbers, made, strict=True)
        ]
        await self.run.emit(MessageAdded(Message("assistant", tuple(asked), usage=usage), run_id="r1"))
        if settle:
            for call, (_, _, text) in zip(asked, made, strict=True):
                await self.finishes(ToolResult(call.call_id, call.name, (Text(text),)))

    async def finishes(self, result: ToolResult) -> None:
        """A call has its result."""
        await self.run.emit(ToolFinished(result.call_id, result.name, result, run_id="r1"))

    async def _requested(self) -> None:
        await self.run.emit(ModelRequested(self.state.turns + 1, run_id="r1"))

    async def log(self) -> list[Event]:
        """Everything that was stored."""
        return [entry.event for entry in await self.store.read("boat")]

    async def refolded(self) -> State:
        """The state of whoever opens the session now."""
        return fold_entries(await self.store.read("boat"))


async def long_talk(conversation: Conversation, turns: int = 30, size: int = 400) -> Run:
    """A run in which files were read again and again."""
    run = await conversation.begin()
    for number in range(turns):
        await conversation.calls(("read_file", f'{{"path": "/boat/{number}.txt"}}', f"line {number} " * (size // 7)))
    return run
