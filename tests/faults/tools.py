"""Tools whose effects can be counted from outside: each writes one line into a ledger. Above: `children.py`."""

import asyncio
import os
from typing import Any

from perdure import ToolContext, tool

CRITICAL_SECONDS = 0.0005
"""How long a tool is under way before and after its effect: there it can be killed too."""


def tools(ledger: str) -> list[Any]:
    """One of each kind: what may happen once, asked for or not; what may be repeated; a function on a thread."""

    def write(context: ToolContext, what: str) -> None:
        """One line for each effect. A receiver that is idempotent knows a key that it has seen."""
        file = os.open(ledger, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(file, f"{context.name} {context.idempotency_key} {what}\n".encode())
        os.close(file)

    async def do(context: ToolContext, what: str) -> str:
        await asyncio.sleep(CRITICAL_SECONDS)
        write(context, what)
        await asyncio.sleep(CRITICAL_SECONDS)
        return f"did {what}"

    @tool(permission=True)
    async def pay(what: str, context: ToolContext) -> str:
        """Pays."""
        return await do(context, what)

    @tool
    async def mail(what: str, context: ToolContext) -> str:
        """Sends a letter."""
        return await do(context, what)

    @tool(parallel=False)
    def sign(what: str, context: ToolContext) -> str:
        """Signs, on a thread."""
        write(context, what)
        return f"did {what}"

    @tool(effect="idempotent")
    async def put(what: str, context: ToolContext) -> str:
        """Puts something somewhere."""
        return await do(context, what)

    @tool(effect="read")
    async def look(what: str, context: ToolContext) -> str:
        """Looks."""
        return await do(context, what)

    return [pay, mail, sign, put, look]
