"""An agent out of perdure.toml: every fault has its line, and nothing runs before the file is trusted."""

import asyncio
import tempfile
from pathlib import Path

from perdure import BadConfig, load_config
from perdure.context import TrustedFiles
from perdure.testing import ScriptedModel, call

BROKEN = """\
modle = "demo"

[limits]
max_turns = "five"
"""

WHOLE = """\
model = "demo"
name = "clerk"
instructions = "You order what is missing."
tools = ["perdure.tools:post_to_inbox"]

[limits]
max_turns = 5

[permissions]
allow = ["post_*"]
"""


def show(error: BadConfig) -> None:
    for fault in error.faults:
        print(f"  line {fault.line}: {fault.message.partition(': read the file')[0]}")


async def main(folder: Path) -> None:
    path = folder / "perdure.toml"
    path.write_text(BROKEN, encoding="utf-8")
    print("A file with two faults:")
    try:
        load_config(path)
    except BadConfig as error:
        show(error)

    path.write_text(WHOLE, encoding="utf-8")
    trusted = TrustedFiles(str(folder / "trusted.json"))
    print("A file that nobody has agreed to:")
    try:
        load_config(path, trusted=trusted)
    except BadConfig as error:
        show(error)

    # What `perdure trust perdure.toml` does, once a person has read the file:
    trusted.trust(str(path), load_config(path, trusted=True).digest)
    config = load_config(path, trusted=trusted)
    model = ScriptedModel(call("post_to_inbox", tag="order", request="40 metres of rope"), "Ordered.")
    agent = config.agent(model=model)
    print(f"Now it is an agent: {agent.name}, with {[tool.name for tool in agent.tools]}")
    print("  says:", (await agent.run("We need rope.")).text)


with tempfile.TemporaryDirectory() as temporary:
    asyncio.run(main(Path(temporary)))
