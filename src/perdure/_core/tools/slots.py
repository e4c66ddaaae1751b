"""Display slots: places where a running tool shows content to people, or asks them a question.

A *slot* is the name of a renderer, and data for it. A slot that waits for an answer is a question, stored in the log
and answered from anywhere; one that does not is shown until it is closed. The predefined kinds are in
`perdure._people`; a custom kind is a class.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from perdure._core.values import checks
from perdure._core.values.error import NotAnswered, ToolError
from perdure._core.values.event_class import Event, SlotClosed, SlotOpened, SlotUpdated
from perdure._core.values.jsonable import to_jsonable

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from .context import ToolContext
    from .run_of_call import CallInProgress

    Answer = TypeVarWithDefault("Answer", default=str)
else:
    Answer = TypeVar("Answer")

T_co = TypeVar("T_co", covariant=True)

SlotLifetime: TypeAlias = Literal["closed", "call", "run"]
"""Lifetime of a slot: until it is closed, or at the latest until the call, or the run, is over."""


class Showable(Struct, frozen=True):
    """Base class of content that a tool shows to people in a display slot. Its fields are the data for the renderer."""

    renderer: ClassVar[str] = ""
    """Name of its kind, by which a user interface selects how to show it."""

    @property
    def shown_as(self) -> str:
        """Name of the renderer with which a user interface displays this content."""
        return self.renderer

    @property
    def input(self) -> Any:
        """The fields as JSON values: the data for the renderer."""
        return to_jsonable(msgspec.structs.asdict(self))


class Askable(Showable, Generic[T_co], frozen=True):
    """Base class of questions that a tool asks people."""

    @property
    def text(self) -> str:
        """The question as text: for lists, and for user interfaces without a renderer of this kind."""
        return f"an answer is required ({self.shown_as})"

    @property
    def output(self) -> Mapping[str, Any] | None:
        """JSON Schema that an answer must match; `None` if any value is accepted."""
        return None

    def read(self, answer: Any) -> T_co:
        """Convert an answer that matches the schema to the value that the tool gets."""
        return answer  # type: ignore[no-any-return]


class TextQuestion(Askable[str], frozen=True):
    """A question that is answered with a line of text."""

    renderer = "line"

    question: str

    def __post_init__(self) -> None:
        checks.require_text("ask", "question", self.question, non_empty=True)

    @property
    def text(self) -> str:
        """The question as text."""
        return self.question

    @property
    def output(self) -> Mapping[str, Any]:
        """JSON Schema of the answer: a string."""
        return {"type": "string"}


class ToolDisplaySlots:
    """The display slots of one tool call (`ToolContext.display`): show, update and remove content, and ask
    questions.
    """

    __slots__ = ("_call", "_context")

    def __init__(self, context: "ToolContext[Any]", call: "CallInProgress | None") -> None:
        self._context = context
        self._call = call

    async def push(self, shown: Showable, *, until: SlotLifetime = "closed") -> str:
        """Show content in a new display slot, and return the slot's id, by which it can be updated and removed.

        A call that is repeated, after a crash or with answers, opens the same slots with the same ids again.
        """
        require_showable("display.push", shown, Showable)
        checks.require_one_of("display.push", "until", until, ("closed", "call", "run"))
        context = self._context
        context.slot_count += 1
        slot_id = _slot_id(context.run_id, context.call_id, context.slot_count)
        opened = SlotOpened(slot_id, shown.shown_as, context.redact(shown.input), context.call_id, until)
        if context.run.stamp_event(opened) != context.run.state.slots.get(slot_id):
            await self._record(opened)
        return slot_id

    async def update(self, slot_id: str, shown: Showable) -> None:
        """Replace the content of a display slot, for example by the next step of a progress bar."""
        require_showable("display.update", shown, Showable)
        self._require_known_slot("display.update", slot_id)
        await self._record(SlotUpdated(slot_id, self._context.redact(shown.input)))

    async def remove(self, slot_id: str, reason: str = "") -> None:
        """Close a display slot, so that its content is no longer shown."""
        checks.require_text("display.remove", "reason", reason)
        self._require_known_slot("display.remove", slot_id)
        await self._record(SlotClosed(slot_id, reason))

    async def ask(self, question: str | Askable[Answer], *, timeout_seconds: float | None = None) -> Answer:
        """Show a question, and wait for the answer. Raises `NotAnswered` when there is none.

        The answer can be given by any process, with `session.answer` or `session.display.resolve`. A tool marked
        `asks_first` is set aside while it waits, and starts again, with the answers that it got, when there is one.
        """
        asked = cast("Askable[Answer]", TextQuestion(question) if isinstance(question, str) else question)
        require_showable("ask", asked, Askable)
        if timeout_seconds is not None:
            checks.require_number("ask", "timeout_seconds", timeout_seconds)
        if self._call is None:
            raise NotAnswered("questions can be asked only while a run carries out the call")
        return asked.read(await self._call.ask_people(self._context, asked, timeout_seconds))

    def _require_known_slot(self, call: str, slot_id: str) -> None:
        """Raise `ToolError` for a slot that this tool call never opened. A slot that was closed meanwhile is
        accepted.
        """
        checks.require_text(call, "slot_id", slot_id, non_empty=True)
        context, known = self._context, self._context.run.state.slots
        own = [_slot_id(context.run_id, context.call_id, place) for place in range(1, context.slot_count + 1)]
        if slot_id not in known and slot_id not in own:
            there = ", ".join(map(repr, known)) or "none"
            raise ToolError(
                f"{call}(slot_id={slot_id!r}): no such slot; give the id that push() returned (open slots: {there})"
            )

    async def _record(self, event: Event) -> None:
        await self._context.record(event)


def _slot_id(run_id: str, call_id: str, place: int) -> str:
    """Return the id of a call's n-th display slot; it is the same when the call is repeated after a crash."""
    import hashlib  # imported at first use: it loads OpenSSL

    return hashlib.sha256(f"{run_id}/{call_id}/{place}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def require_showable(call: str, value: object, kind: type) -> None:
    """Raise `ConfigError` unless the value is an instance of `kind`: `Showable` (content) or `Askable` (a question)."""
    if not isinstance(value, kind):
        wanted = "a question in words, or one such as Confirm(…)" if kind is Askable else "something such as Table(…)"
        checks.raise_config_error(call, "shown" if kind is Showable else "question", value, f"give {wanted}")
