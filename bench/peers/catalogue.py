"""The contestants of the comparison: the hand-written loop, Perdure, and six other libraries.

Each of the others has a file of pinned packages in `requirements/` and an environment of its own in `.venv-bench`, so
that no library decides about the versions that another one gets.
"""

import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENTS = ROOT / ".venv-bench"
REQUIREMENTS = Path(__file__).parent / "requirements"


class Peer(NamedTuple):
    """A contestant of the comparison."""

    name: str
    """As people call it; also the name of its environment and of its file of requirements."""
    module: str
    """The module of this package that has its agent."""
    imported: str
    """The import of every program that uses it."""
    is_installed_here: bool = False
    """True for what runs in `.venv`."""
    distribution: str = ""
    """The package whose version is printed, if it is not called as the library."""

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return Path(sys.executable) if self.is_installed_here else ENVIRONMENTS / self.name / "bin" / "python"

    @property
    def requirements(self) -> Path:
        """The file with its pinned packages."""
        return REQUIREMENTS / f"{self.name}.txt"

    @property
    def is_ready(self) -> bool:
        """True when its environment is there, with the packages of its file."""
        if self.is_installed_here:
            return True
        stamp = ENVIRONMENTS / self.name / "installed.txt"
        return stamp.is_file() and stamp.read_text("utf-8") == self.requirements.read_text("utf-8")


HAND = Peer("by hand", "with_hand", "import aiohttp", is_installed_here=True, distribution="aiohttp")
PERDURE = Peer("Perdure", "with_perdure", "from perdure import Agent, tool", is_installed_here=True)
PEERS = (
    Peer("pydantic-ai", "with_pydantic_ai", "from pydantic_ai import Agent", distribution="pydantic-ai-slim"),
    Peer("openai-agents", "with_openai_agents", "from agents import Agent, Runner, function_tool"),
    Peer("langgraph", "with_langgraph", "from langchain.agents import create_agent"),
    Peer("agno", "with_agno", "from agno.agent import Agent"),
    Peer(
        "agent-framework",
        "with_agent_framework",
        "from agent_framework import Agent",
        distribution="agent-framework-core",
    ),
    Peer("strands", "with_strands", "from strands import Agent, tool", distribution="strands-agents"),
)
"""The libraries of others, in the order of the tables."""
