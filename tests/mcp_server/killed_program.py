"""A program that serves an agent whose tool has an effect and then never ends; it is killed meanwhile."""

import asyncio
import sys
from pathlib import Path

from perdure import Agent, tool
from perdure.mcp import serve_http
from perdure.permissions import allow_all
from perdure.testing import ScriptedModel, call


def main(folder: Path, token: str) -> None:
    effects = folder / "effects"

    @tool
    async def act() -> str:
        """Act once, and wait."""
        with effects.open("a") as file:
            file.write("x")
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel("seen") if effects.exists() else ScriptedModel(call("act"), "never")
    agent = Agent(model, name="box", tools=[act], store=f"sqlite:{folder / 'log.db'}", permission=allow_all)

    def note_url(url: str) -> None:
        (folder / "url").write_text(url)

    asyncio.run(serve_http(agent, tokens={"ann": token}, port=0, on_started=note_url))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
