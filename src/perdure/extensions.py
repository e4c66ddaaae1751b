"""The extensions that we have. Above: callers. Below: `extension.py`, and the parts that they bundle.

Each is a function that returns an `Extension`: nothing here can do what one of your own could not.
"""

from .context.history import history_tools
from .context.large_results import MAX_CHARACTERS
from .context.large_results import large_results as _large_results
from .context.summaries import summarised
from .extension import Extension
from .toolkits.scratchpad import scratchpad_tools
from .toolkits.tasks import task_tools
from .toolkits.todo import todo_tools

__all__ = ["history", "large_results", "notebook", "short_results"]


def large_results(max_characters: int = MAX_CHARACTERS) -> Extension:
    """Send a result that is longer than this as its beginning and end, and let the model read and search the rest.

    The log keeps all of it.
    """
    pieces = _large_results(max_characters)
    return Extension(name="large_results", tools=pieces.tools, wrap_tool=pieces.wrap_tool)


def short_results(*, min_tokens: int = 2_000, min_fraction: float = 0.1) -> Extension:
    """Send the results of earlier runs in their short form, where they have one and it is worth a change of the view.

    The short form is `ToolOutput.summary`, or made by `@tool(summary=…)`.
    """
    return Extension(name="short_results", upkeep=[summarised(min_tokens=min_tokens, min_fraction=min_fraction)])


def history() -> Extension:
    """Let the model search and read all that was said in the conversation, also what a summary stands for now."""
    return Extension(name="history", tools=history_tools())


def notebook(*, tasks: bool = True, todos: bool = False, scratchpad: bool = True) -> Extension:
    """A list of tasks, a list of things to do with retries, a page for notes: kept in the log, shown to screens."""
    tools = [
        *(task_tools() if tasks else ()),
        *(todo_tools() if todos else ()),
        *(scratchpad_tools() if scratchpad else ()),
    ]
    return Extension(name="notebook", tools=tools)
