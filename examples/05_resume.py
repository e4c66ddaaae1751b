"""A session that outlives its process: the effect is done, the process is killed, and the run goes on without it."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call


def charge_in(folder: Path, *, deadly: bool) -> Agent:
    """An agent that charges ten crowns. In the first process the power fails right after the effect."""

    @tool
    async def charge(crowns: int) -> str:
        """Charge an amount."""
        with (folder / "ledger.txt").open("a") as ledger:
            ledger.write(f"{crowns} crowns\n")
        if deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return "charged"

    model = ScriptedModel("I could not see whether the charge went through. Please look at the ledger.")
    if deadly:
        model = ScriptedModel(call("charge", crowns=10))
    return Agent(model, tools=[charge], store=f"sqlite:{folder / 'sessions.db'}")


async def go_on(folder: Path) -> None:
    async with charge_in(folder, deadly=False) as agent:
        outcome = await agent.session("payment").resume()
    result = outcome.new_messages[2].tool_results[0]
    print(f"the call of {result.name!r} is {result.status}: {result.text}")
    print("the model:", outcome.text)
    print("the ledger:", (folder / "ledger.txt").read_text().splitlines())


if len(sys.argv) > 1:
    asyncio.run(charge_in(Path(sys.argv[1]), deadly=True).session("payment").run("Charge ten crowns."))
else:
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.run([sys.executable, __file__, folder], check=False)  # noqa: S603 - this very file
        print("the process ended with", signal.Signals(-child.returncode).name)
        asyncio.run(go_on(Path(folder)))
