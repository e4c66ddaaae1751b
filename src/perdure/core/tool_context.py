"""What a tool is given while it carries out a call. Above: `tool.py`. Below: the run, slots, events."""

import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from . import check
from .clock import new_id
from .event import RESERVED, Event, InboxAdded, ValueKept
from .message import ToolResult
from .plain import to_jsonable
from .secrecy import Clearing
from .slot import Askable, Display

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from .run import Run
    from .tool import Tool

    D = TypeVarWithDefault("D", default=Any)
else:
    D = TypeVar("D")

T = TypeVar("T")

_telling = threading.Lock()
"""Of two threads, the first one's text is told first."""


class ToolContext(Generic[D]):
    """What a tool may ask for, by annotating a parameter with it. One for each call."""

    __slots__ = ("_begin", "_progress", "_run", "asked", "call_id", "cancelled", "name", "scrub", "shown")

    def __init__(self, run: "Run", call_id: str, name: str, begin: Callable[[], Awaitable[None]] | None = None) -> None:
        self._run = run
        self._begin = begin
        self._progress: Clearing | None = None
        self.asked = 0
        """How many questions this call has asked."""
        self.shown = 0
        """How many things it has begun to show."""
        self.scrub: Callable[[Any], Any] | None = None
        """Takes secrets out of whatever the tool shows or keeps, when it is given some."""
        self.call_id = call_id
        """The call that is being carried out."""
        self.name = name
        """The tool that was called."""
        self.cancelled = False
        """Becomes true when nobody waits for the result any more. A plain function should look at it now and then."""

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this call, also after a crash: hand it to the receiver."""
        return self._run.idempotency_key(self.call_id)

    @property
    def deps(self) -> D:
        """What the agent was given as `deps`."""
        return cast("D", self._run.deps)

    @property
    def session_id(self) -> str:
        """The session in which this happens."""
        return self._run.session_id

    @property
    def run_id(self) -> str:
        """The run in which this happens."""
        return self._run.run_id

    @property
    def turn(self) -> int:
        """The turn in which this happens, from 1."""
        return self._run.state.turns

    @property
    def state(self) -> dict[str, Any]:
        """A place for tools of this run to leave things for each other. Not kept in the log."""
        return self._run.scratch

    @property
    def run(self) -> "Run":
        """The run itself, for tools that are a part of the runtime."""
        return self._run

    def emit(self, data: Any) -> None:
        """Tell watchers how far it is. Works from a thread too.

        Text is taken to be a piece of a longer one: where there are secrets to keep, what may be the beginning of one
        is held back until it is clear.
        """
        data, redactor = self.scrubbed(data), self._run.secrecy.redactor
        if type(data) is not str or redactor is None:
            self._run.progress(self.call_id, self.name, data)
            return
        with _telling:
            self._progress = self._progress or redactor.stream()
            if (clear := self._progress.feed(data)) or not data:
                self._run.progress(self.call_id, self.name, clear)

    def finish(self) -> None:
        """Nothing more comes: what was held back is told."""
        if self._progress is not None:
            with _telling:
                if rest := self._progress.end():
                    self._run.progress(self.call_id, self.name, rest)

    def scrubbed(self, data: Any) -> Any:
        """The same, without secrets that the tool was given."""
        return data if self.scrub is None else self.scrub(data)

    async def record(self, event: Event) -> None:
        """Put an event into the log, as one of this run. For kinds of your own there is `Custom`."""
        if not isinstance(event, Event):
            check.refuse("record", "event", event, "give an event, such as Custom(…)")
        await self._run.emit(self._run.stamped(event))

    async def keep(self, name: str, value: Any) -> None:
        """Leave something in the log under a name, for later calls and runs, and for screens. The last one counts."""
        check.text("keep", "name", name, filled=True)
        if name.startswith(RESERVED):
            check.refuse("keep", "name", name, f"names that begin with {RESERVED!r} are the runtime's: choose another")
        await self.record(ValueKept(name, to_jsonable(self.scrubbed(value))))

    def kept(self, name: str, default: Any = None) -> Any:
        """What was left in the log under that name."""
        return self._run.state.kept.get(name, default)

    def result_of(self, call_id: str) -> ToolResult | None:
        """The result of an earlier call in this conversation, whole."""
        for message in reversed(self._run.state.messages):
            for result in message.tool_results:
                if result.call_id == call_id:
                    return result
        return None

    @property
    def display(self) -> Display:
        """What people are shown by this call."""
        return Display(self)

    @overload
    async def ask(self, question: str, *, timeout_seconds: float | None = None) -> str: ...
    @overload
    async def ask(self, question: Askable[T], *, timeout_seconds: float | None = None) -> T: ...
    async def ask(self, question: str | Askable[T], *, timeout_seconds: float | None = None) -> str | T:
        """Ask people, and wait for the answer: words, or a question such as `Confirm(…)`, `Choice(…)`, `Form(…)`.

        Raises `NotAnswered` when nobody answers. See `Display.ask`.
        """
        return await self.display.ask(question, timeout_seconds=timeout_seconds)

    @property
    def can_begin_again(self) -> bool:
        """Whether the call has had no effect yet: it asks first, and has not begun."""
        return self._begin is not None and self.call_id not in self._run.state.started

    async def begin(self) -> None:
        """From here on the call may have an effect. For tools that are marked `asks_first`; others began long ago."""
        if self._begin is not None:
            await self._begin()

    async def compact(self) -> bool:
        """Have the conversation so far summed up for the model; `False` when the agent has no compaction."""
        return await self._run.compact("agent")

    async def add_to_inbox(self, tag: str, request: str, *, blocking: bool = False, wake: bool = False) -> str:
        """Ask the outside world for something that will take a while; returns the id that an answer has to name.

        The model is told the answer when it has come, in this run or a later one. `blocking`: it is reminded that it
        cannot go on without. `wake`: the answer begins a run when none is going.
        """
        check.text("add_to_inbox", "tag", tag, filled=True)
        check.text("add_to_inbox", "request", request)
        item_id = new_id()
        await self._run.emit(InboxAdded(item_id, tag, request, blocking, wake, run_id=self.run_id, path=self._run.path))
        return item_id

    def add_tools(self, *tools: "Tool[..., Any]") -> None:
        """Offer more tools from the next turn on."""
        self._run.add_tools(tools)
