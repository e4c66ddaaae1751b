"""The tools `read_scratchpad` and `write_scratchpad`: a page of notes that an agent keeps for itself.

It is stored in the log, under the name `scratchpad`: it survives a restart and a compaction, and screens see it change
as `value_kept`.
"""

from typing import Annotated, Any, Final

from perdure.core.error import ToolError
from perdure.core.tool import Tool, ToolContext, tool

from .list_storage import Values, read_value, replace_value_store, write_value

SCRATCHPAD: Final = "scratchpad"
"""The name under which the page is stored."""
MOST_CHARACTERS: Final = 20_000


def scratchpad_tools(values: Values = None) -> list[Tool[..., Any]]:
    """Return the tools `read_scratchpad` and `write_scratchpad`, with which an agent keeps a page of notes.

    `values` is where it is stored: by default in the log of the agent, with `"session"` in that of the session, for all
    its agents, or in a `ValueStore` of your own.
    """
    return replace_value_store([read_scratchpad, write_scratchpad], values)


@tool(effect="read", parallel=False, credentials=False)
async def read_scratchpad(context: ToolContext[Any]) -> str:
    """Read your page of notes."""
    return str(await read_value(context, SCRATCHPAD, "")) or "(empty)"


@tool(effect="idempotent", parallel=False, credentials=False)
async def write_scratchpad(
    content: Annotated[str, "The whole text of the page. It replaces the old text."], context: ToolContext[Any]
) -> str:
    """Write your page of notes: facts, plans and findings that you will need later."""
    size = len(content)
    if size > MOST_CHARACTERS:
        raise ToolError(f"{size:,} characters are too many, {MOST_CHARACTERS:,} are the most: keep what matters")
    await write_value(context, SCRATCHPAD, content)
    return f"The page has {size:,} characters now." if content else "The page is empty now."
