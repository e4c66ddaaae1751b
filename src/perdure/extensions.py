"""Ready-made extensions: previews of results, history search, task list and notes.

Each is a function that returns an `Extension`: your own extensions can do the same.
"""

from .context.history_tools import history_tools
from .context.large_results import MAX_CHARACTERS
from .context.large_results import large_results as _large_results
from .context.result_summaries import summarize_old_results
from .runtime.extension import Extension
from .toolkits.scratchpad import scratchpad_tools
from .toolkits.tasks import task_tools
from .toolkits.todo import todo_tools
from .toolkits.value_store import Values

__all__ = ["history", "large_results", "notebook", "short_results"]


def large_results(max_characters: int = MAX_CHARACTERS) -> Extension:
    """Send long tool results as a preview, and let the model read and search the rest.

    A preview is the beginning and end of a result of more than `max_characters`. The log keeps the full result.
    """
    pieces = _large_results(max_characters)
    return Extension(name="large_results", tools=pieces.tools, wrap_tool=pieces.wrap_tool)


def short_results(*, min_tokens: int = 2_000, min_fraction: float = 0.1) -> Extension:
    """Send tool results of earlier runs in their short form, where that saves enough tokens to be worth a cache miss.

    The short form is `ToolOutput.summary`, or is made by `@tool(summary=…)`.
    """
    return Extension(
        name="short_results", between_turns=[summarize_old_results(min_tokens=min_tokens, min_fraction=min_fraction)]
    )


def history() -> Extension:
    """Let the model search and read the whole conversation, including what a summary has replaced."""
    return Extension(name="history", tools=history_tools())


def notebook(*, tasks: bool = True, todos: bool = False, scratchpad: bool = True, values: Values = None) -> Extension:
    """Give the model a task list, a to-do list with retries and a page of notes, stored in the log and displayed.

    `values` is where they are stored, as for `task_tools`: with `"session"` all agents of the session share them.
    """
    tools = [
        *(task_tools(values) if tasks else ()),
        *(todo_tools(values) if todos else ()),
        *(scratchpad_tools(values) if scratchpad else ()),
    ]
    return Extension(name="notebook", tools=tools)
