"""What a tool shows to people and asks them, while it runs. Above: `tool.py`. Below: `question.py` and the log.

Whatever is shown is a *slot*: a renderer's name, and data for it. A slot that waits for an answer is a question, kept
in the log and answered from anywhere; one that does not is shown until it is closed. The kinds that we have are in
`perdure.interaction`; a kind of your own is a class.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, overload

import msgspec
from msgspec import Struct

from . import check
from .error import ToolError
from .event import Event, SlotClosed, SlotOpened, SlotUpdated
from .plain import to_jsonable

if TYPE_CHECKING:
    from .tool_context import ToolContext

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Until: TypeAlias = Literal["closed", "call", "run"]
"""How long something is shown: until it is closed, or at the latest until the call, or the run, is over."""


class Showable(Struct, frozen=True):
    """Something for people to see. Its fields are the data that a renderer is given."""

    renderer: ClassVar[str] = ""
    """The name of its kind, by which a screen knows how to show it."""

    @property
    def shown_as(self) -> str:
        """Which renderer shows this one."""
        return self.renderer

    @property
    def input(self) -> Any:
        """The data, as JSON values."""
        return to_jsonable(msgspec.structs.asdict(self))


class Askable(Showable, Generic[T_co], frozen=True):
    """Something that people can answer."""

    @property
    def text(self) -> str:
        """What is asked, in words: for lists and for whoever has no renderer of this kind."""
        return f"an answer is wanted ({self.shown_as})"

    @property
    def output(self) -> Mapping[str, Any] | None:
        """The JSON Schema of an answer; `None` when anything may be answered."""
        return None

    def read(self, answer: Any) -> T_co:
        """An answer that fits the schema, as the value that the tool gets."""
        return answer  # type: ignore[no-any-return]


class Line(Askable[str], frozen=True):
    """A question that is answered in words."""

    renderer = "line"

    question: str

    def __post_init__(self) -> None:
        check.text("ask", "question", self.question, filled=True)

    @property
    def text(self) -> str:
        """What is asked, in words."""
        return self.question

    @property
    def output(self) -> Mapping[str, Any]:
        """Words."""
        return {"type": "string"}


class Display:
    """What the tool of one call shows (`ToolContext.display`)."""

    __slots__ = ("_context",)

    def __init__(self, context: "ToolContext[Any]") -> None:
        self._context = context

    async def push(self, shown: Showable, *, until: Until = "closed") -> str:
        """Show something, and go on; returns the id by which it can be changed and removed.

        A call that is made again, after a crash or with answers, shows the same things again in the same places.
        """
        _check_showable("display.push", shown, Showable)
        check.one_of("display.push", "until", until, ("closed", "call", "run"))
        context = self._context
        context.shown += 1
        slot_id = _slot_id(context.run_id, context.call_id, context.shown)
        opened = SlotOpened(slot_id, shown.shown_as, context.scrubbed(shown.input), context.call_id, until)
        if context.run.stamped(opened) != context.run.state.slots.get(slot_id):
            await self._record(opened)
        return slot_id

    async def update(self, slot_id: str, shown: Showable) -> None:
        """Show something else in its place: the next step of some progress, a longer table."""
        _check_showable("display.update", shown, Showable)
        self._check_known("display.update", slot_id)
        await self._record(SlotUpdated(slot_id, self._context.scrubbed(shown.input)))

    async def remove(self, slot_id: str, reason: str = "") -> None:
        """Show it no more."""
        check.text("display.remove", "reason", reason)
        self._check_known("display.remove", slot_id)
        await self._record(SlotClosed(slot_id, reason))

    @overload
    async def ask(self, question: str, *, timeout_seconds: float | None = None) -> str: ...
    @overload
    async def ask(self, question: Askable[T], *, timeout_seconds: float | None = None) -> T: ...
    async def ask(self, question: str | Askable[T], *, timeout_seconds: float | None = None) -> str | T:
        """Show a question, and wait for the answer. Raises `NotAnswered` when none comes.

        The answer can come from any process, by `session.answer` or `session.display.resolve`. A tool that is marked
        `asks_first` is put aside while it waits, and begins again, with the answers that it got, when there is one.
        """
        from .question import slot  # it stands on tools, and so on this

        asked: Askable[str] | Askable[T] = Line(question) if isinstance(question, str) else question
        _check_showable("ask", asked, Askable)
        if timeout_seconds is not None:
            check.number("ask", "timeout_seconds", timeout_seconds)
        return asked.read(await slot(self._context, asked, timeout_seconds))

    def _check_known(self, call: str, slot_id: str) -> None:
        """Refuse what nobody is shown. What this call has shown, somebody may have closed meanwhile: that is fine."""
        check.text(call, "slot_id", slot_id, filled=True)
        context, known = self._context, self._context.run.state.slots
        own = [_slot_id(context.run_id, context.call_id, place) for place in range(1, context.shown + 1)]
        if slot_id not in known and slot_id not in own:
            there = ", ".join(map(repr, known)) or "none"
            raise ToolError(
                f"{call}(slot_id={slot_id!r}): there is no such slot, give what push() returned; open: {there}"
            )

    async def _record(self, event: Event) -> None:
        await self._context.record(event)


def _slot_id(run_id: str, call_id: str, place: int) -> str:
    """The name of the n-th thing that a call shows: the same whenever it is made."""
    import hashlib  # at first use: it loads OpenSSL's

    return hashlib.sha256(f"{run_id}/{call_id}/{place}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _check_showable(call: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        wanted = "a question in words, or one such as Confirm(…)" if kind is Askable else "something such as Table(…)"
        check.refuse(call, "shown" if kind is Showable else "question", value, f"give {wanted}")
