"""The tool `post_to_inbox`: the model adds a request for a job or a person to its inbox, and gets the result later."""

from typing import Annotated

from perdure.core.tool import ToolContext, tool


@tool(sends=True, credentials=False)
async def post_to_inbox(
    tag: Annotated[str, "What kind of thing it is: a short word that the one who answers knows."],
    request: Annotated[str, "What is asked for, so that it can be understood without this conversation."],
    context: ToolContext[None],
    blocking: Annotated[bool, "Whether the work cannot go on without the answer."] = False,  # noqa: FBT002 - a model gives it by name
) -> str:
    """Request a result from outside that takes time, such as a job, a mail or a person's decision. The answer
    arrives later.
    """
    item_id = await context.add_to_inbox(tag, request, blocking=blocking, wake=True)
    wait = "Do not go on with what depends on it." if blocking else "You need not wait for it."
    return f"Asked for, as item {item_id}. You will receive the answer when it arrives. {wait}"
