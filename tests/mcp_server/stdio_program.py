"""A program that serves tools and an agent over stdio, for the tests."""

import asyncio

from perdure.mcp import ServedAgent, serve_stdio
from tests.mcp_server.served_tools import TOOLS, Slow, helper


async def main() -> None:
    agent = helper("first answer", "second answer")
    await serve_stdio([*TOOLS, Slow().wait_for_ever, ServedAgent(agent=agent)], name="test-server")


if __name__ == "__main__":
    asyncio.run(main())
