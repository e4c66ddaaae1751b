"""A page of notes that an agent keeps for itself. Above: agents. Below: `core`.

It is in the log, under the name `scratchpad`: it is there after a restart and when the conversation was summed up, and
screens see it change as `value_kept`.
"""

from typing import Annotated, Any, Final

from perdure.core.error import ToolError
from perdure.core.tool import Tool, ToolContext, tool

SCRATCHPAD: Final = "scratchpad"
"""The name under which the page is kept."""
MOST_CHARACTERS: Final = 20_000


def scratchpad_tools() -> list[Tool[..., Any]]:
    """`read_scratchpad` and `write_scratchpad`."""
    return [read_scratchpad, write_scratchpad]


@tool(effect="read", parallel=False, credentials=False)
async def read_scratchpad(context: ToolContext[Any]) -> str:
    """Read your page of notes."""
    return str(context.kept(SCRATCHPAD, "")) or "(empty)"


@tool(effect="idempotent", parallel=False, credentials=False)
async def write_scratchpad(
    content: Annotated[str, "All that the page is to say. It replaces what is there."], context: ToolContext[Any]
) -> str:
    """Write your page of notes: facts, plans and findings that you will need later."""
    page = content.strip()
    if len(page) > MOST_CHARACTERS:
        raise ToolError(f"{len(page):,} characters are too many, {MOST_CHARACTERS:,} are the most: keep what matters")
    await context.keep(SCRATCHPAD, page)
    return f"The page has {len(page):,} characters now." if page else "The page is empty now."
