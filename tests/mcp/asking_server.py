"""A server made with the official SDK, whose tool asks a person for a color: python asking_server.py FOLDER"""

import sys
from pathlib import Path
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve
from pydantic import BaseModel

server = MCPServer("asking")


class Color(BaseModel):
    """What the person answers."""

    color: str


def ask() -> Elicit[Color]:
    """Ask the person."""
    return Elicit("Which color?", Color)


@server.tool()
def paint(color: Annotated[Color, Resolve(ask)]) -> str:
    """Paint something, and note that it was done."""
    with Path(sys.argv[1], "effects").open("a", encoding="utf-8") as file:
        file.write(f"{color.color}\n")
    return f"painted {color.color}"


if __name__ == "__main__":
    server.run("stdio")
