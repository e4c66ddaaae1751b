"""What type checkers make of tools that ask. Checked by mypy and basedpyright, strictly, and never run."""

import dataclasses
from typing import Any, TypedDict, assert_type

from msgspec import Struct

from perdure import Grant, Session, ToolContext, tool
from perdure.people import (
    Choice,
    Confirm,
    CustomSlot,
    Form,
    Markdown,
    MultiSelect,
    Option,
    Picture,
    PlainText,
    Progress,
    SlotView,
    Table,
)
from perdure.permissions import Explanation


@dataclasses.dataclass
class Address:
    """A dataclass."""

    street: str


class Parcel(Struct):
    """A struct."""

    weight: float


class Named(TypedDict):
    """A typed dict."""

    name: str


@tool(asks_first=True)
async def everything(context: ToolContext[None]) -> str:
    """Ask in every way."""
    assert_type(await context.ask("Who?"), str)
    assert_type(await context.ask(Confirm("Really?")), bool)
    assert_type(await context.ask(Choice("Which?", ["a", Option("b")]), timeout_seconds=5), str)
    assert_type(await context.ask(MultiSelect("Which?", ["a", "b"])), list[str])
    assert_type(await context.ask(Form("Where?", Address)), Address)
    assert_type(await context.ask(Form("What?", Parcel, initial=Parcel(1.0))), Parcel)
    assert_type(await context.ask(Form("Who?", Named)), Named)
    assert_type(await context.ask(Form("What?", {"type": "object"})), dict[str, Any])
    assert_type(await context.ask(CustomSlot("map", {"at": [1, 2]})), Any)
    assert_type(await context.display.ask(Confirm("Really?")), bool)
    slot_id = await context.display.push(Progress("copying", 1, 2), until="call")
    await context.display.update(slot_id, Progress("copying", 2, 2))
    for shown in (PlainText("x"), Markdown("x"), Table(["a"], [[1]]), Picture(url="https://example.org")):
        assert_type(await context.display.push(shown), str)
    await context.begin()
    return slot_id


async def look(session: Session) -> None:
    """Look at a session, and settle what waits."""
    for view in await session.display.slots():
        assert_type(view, SlotView)
        assert_type(await session.display.resolve(view.slot_id, value=True), bool)
        assert_type(await session.display.reject(view.slot_id, "no"), bool)
    async for views in session.display.subscribe():
        assert_type(views, list[SlotView])
    assert_type(await session.explain("pay", {}), Explanation)
    assert_type(await session.grants(), list[Grant])
