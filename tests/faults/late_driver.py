"""A process that is stopped in the first of three calls of one reply. For `test_late_effects.py`.

    python -m tests.faults.late_driver STORE LEDGER EFFECT

Its effects are lines of the ledger, which nobody takes back.
"""

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from perdure import Agent, ToolContext, tool
from perdure.stores import Fenced, PostgresStore, Store, open_store
from perdure.testing import ScriptedModel, call, calls

SESSION = "payments"
LEASE_SECONDS = 1.0
"""How long a lease lasts in PostgreSQL."""
NAMES = ("one", "two", "three")


def open_place(address: str) -> Store:
    """The store that the processes share."""
    url, _, tenant = address.partition("#")
    return PostgresStore(url, tenant=tenant, lease_seconds=LEASE_SECONDS) if tenant else open_store(address)


def paying_agent(store: Store, ledger: Path, effect: Any, *replies: Any, stops: bool) -> Agent[None]:
    """An agent whose tools write into the ledger; the first one stops its process, if it is to."""

    @tool(effect=effect)
    async def pay(name: str, context: ToolContext) -> str:
        """Pays."""
        with ledger.open("a") as file:
            file.write(f"{os.getpid()} {name} {context.fence}\n")
        if stops and name == NAMES[0]:
            # To this thread: one to the process may be taken by another thread, while this one begins the next call.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return "paid"

    return Agent(ScriptedModel(*replies), tools=[pay], store=store)


async def main(address: str, ledger: str, effect: str) -> None:
    store = open_place(address)
    replies = calls(*[call("pay", name=name) for name in NAMES]), "Paid."
    agent = paying_agent(store, Path(ledger), effect, *replies, stops=True)
    try:
        print((await agent.session(SESSION).run("Pay.")).status)  # noqa: T201
    except Fenced:
        print("fenced")  # noqa: T201
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
