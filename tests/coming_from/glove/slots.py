"""What tests of displays share."""

from contextlib import aclosing

from perdure import Session
from perdure.people import SlotView


async def wait_for_slots(session: Session, count: int) -> list[SlotView]:
    """Wait until this many slots of a session are open, and return them."""
    async with aclosing(session.display.subscribe()) as changes:
        async for slots in changes:
            if len(slots) == count:
                return slots
    raise AssertionError("the session was closed")
