"""Display adapters: objects by which a host program shows all display slots of a session, in a window or a chat."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from perdure.core import argument_checks
from perdure.core.error import ConfigError, NotAnswered, UsageError
from perdure.core.store import cancel_and_await_tasks
from perdure.interaction.slot_view import SlotView

if TYPE_CHECKING:
    from .session_display_slots import SessionDisplay

T = TypeVar("T")
logger = logging.getLogger("perdure")


class DisplayAdapter(Protocol):
    """Protocol for a host program's display of slots, such as a window, a chat or a web page.

    The methods may be plain or async.
    """

    def show(self, slot: SlotView) -> object:
        """Show a slot that is new, or whose content has changed."""

    def close(self, slot_id: str) -> object:
        """Remove a slot that was closed, or whose question needs no answer any more."""

    def ask(self, slot: SlotView) -> Any:
        """Return the answer to the question in a slot; raise `NotAnswered` to decline it.

        It is cancelled when the question is settled elsewhere. An adapter that answers in another way, by
        `display.resolve`, need not return.
        """


@asynccontextmanager
async def connect_adapter(display: "SessionDisplay", adapter: DisplayAdapter) -> AsyncGenerator[None]:
    """Async context manager that passes all display slots of a session to an adapter."""
    for method in ("show", "close", "ask"):
        if not callable(getattr(adapter, method, None)):
            advice = f"give an object with show(slot), close(slot_id) and ask(slot): it has no {method}"
            argument_checks.raise_config_error("display.connect", "adapter", adapter, advice)
    connection = _Connection(display, adapter)
    task = asyncio.ensure_future(connection.serve())
    try:
        yield
    finally:
        await cancel_and_await_tasks((task,))


class _Connection:
    """The connection of an adapter to a display: the slots it shows, and the questions it asks."""

    def __init__(self, display: "SessionDisplay", adapter: DisplayAdapter) -> None:
        self._display = display
        self._adapter = adapter
        self._shown: dict[str, SlotView] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Pass every change of the display to the adapter until this task is cancelled."""
        try:
            async with aclosing(self._display.subscribe()) as changes:
                async for slots in changes:
                    await self._pass_changes({slot.slot_id: slot for slot in slots})
        finally:
            await cancel_and_await_tasks(list(self._asking.values()))

    async def _pass_changes(self, slots: dict[str, SlotView]) -> None:
        before, self._shown = self._shown, slots
        for slot_id in before.keys() - slots.keys():
            if (task := self._asking.pop(slot_id, None)) is not None:
                task.cancel()
            await self._report_errors(self._adapter.close, slot_id)
        for slot_id, slot in slots.items():
            if before.get(slot_id) != slot:
                await self._report_errors(self._adapter.show, slot)
            if slot.waits and slot_id not in self._asking:
                self._asking[slot_id] = asyncio.ensure_future(self._report_errors(self._ask, slot))

    async def _ask(self, slot: SlotView) -> None:
        try:
            answer = self._adapter.ask(slot)
            await self._display.resolve(slot.slot_id, await answer if isawaitable(answer) else answer)
        except NotAnswered as refusal:
            await self._display.reject(slot.slot_id, str(refusal) or "the question was declined")

    async def _report_errors(self, method: Callable[[T], object], argument: T) -> None:
        """Call a method of the adapter and log its errors, so that the display goes on and questions stay open."""
        try:
            work = method(argument)
            if isawaitable(work):
                await work
        except (ConfigError, UsageError) as error:
            logger.warning("the answer of the display %r is not accepted: %s", self._adapter, error)
        except Exception:
            logger.exception("the display %r failed", self._adapter)
