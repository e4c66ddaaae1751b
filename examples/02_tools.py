"""Tools: plain and async functions, typed parameters, data for a screen, and an error that goes back to the model."""

from typing import Annotated

from perdure import Agent, ToolError, ToolOutput, tool
from perdure.testing import Recorder, ScriptedModel, call, calls

STOCK = {"rope": 40, "anchor": 2}


@tool(effect="read")
def stock(article: Annotated[str, "What to look for"]) -> ToolOutput:
    """How many of an article there are.

    A plain function runs on a thread, so it may block.
    """
    if article not in STOCK:
        raise ToolError(f"there is no article {article!r}; there is {', '.join(STOCK)}")
    count = STOCK[article]
    return ToolOutput(content=f"{count} of {article}", render={"article": article, "count": count})


@tool
async def order(article: str, count: int = 1) -> dict[str, object]:
    """Order an article.

    Args:
        article: What to order.
        count: How many of it.
    """
    return {"ordered": article, "count": count}


model = ScriptedModel(
    calls(call("stock", article="rope"), call("stock", article="sail")),  # two at once; the second one is a mistake
    call("order", article="anchor", count="three"),  # not a number: the tool is not called, the model is told
    call("order", article="anchor", count=3),
    "I ordered three anchors. There are 40 ropes, and no sails.",
)
recorder = Recorder()
agent = Agent(model, tools=[stock, order], watchers=[recorder])
outcome = agent.run_sync("How are we for ropes and sails? And order three anchors.")

print(recorder)
print()
print("for a screen:", outcome.new_messages[2].tool_results[0].render)
