"""Tools that ask people: `ask_user` and `plan` ask the user now, `post_to_inbox` requests a result for later."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from perdure._core.tools.context import ToolContext
from perdure._core.tools.slots import Askable
from perdure._core.tools.tool import Tool, tool
from perdure._core.values.error import NotAnswered, ToolError

PLAN: Final = "plan"
"""The name under which the log has the last plan that a person agreed to."""
MOST_OPTIONS: Final = 10
"""The most options of a question."""
_APPROVE: Final = "approve"
_REJECT: Final = "reject"


class ChoiceQuestion(Askable[str], frozen=True):
    """A question to the user with options; any other text is accepted as an answer too."""

    renderer = "choice"

    question: str
    options: Sequence[str]

    @property
    def text(self) -> str:
        """The question as text."""
        return self.question

    @property
    def input(self) -> Any:
        """The question, with each option."""
        options = [{"value": each, "label": each, "description": ""} for each in self.options]
        return {"question": self.question, "options": options, "other": True}

    @property
    def output(self) -> Mapping[str, Any]:
        """The schema of the answer: text."""
        return {"type": "string"}


def people_tools() -> list[Tool[..., Any]]:
    """Return the tools `ask_user` and `plan`: the model asks a question, or asks for approval of a plan."""
    return [ask_user, plan]


@tool(asks_first=True, parallel=False, credentials=False)
async def ask_user(
    question: Annotated[str, "The question, so that it can be understood without looking anything up."],
    context: ToolContext[Any],
    options: Annotated[Sequence[str], "Answers to choose from, if there are some; another answer is possible."] = (),
) -> str:
    """Ask the user a question that only the user can answer, and wait for the answer."""
    if not question.strip():
        raise ToolError("give a question")
    if len(options) > MOST_OPTIONS or len({*options}) != len(options) or not all(each.strip() for each in options):
        raise ToolError(f"give up to {MOST_OPTIONS} options, each of them once and not empty")
    try:
        return await context.ask(ChoiceQuestion(question, options) if options else question)
    except NotAnswered as error:
        raise ToolError(f"the user did not answer ({error}): decide yourself, and say what you assumed") from error


@tool(asks_first=True, parallel=False, credentials=False)
async def plan(
    steps: Annotated[str, "The plan, as a list of steps in Markdown."],
    context: ToolContext[Any],
) -> str:
    """Show the user a plan before a larger change, and wait until the user approves, rejects or amends it."""
    if not steps.strip():
        raise ToolError("give the steps of the plan")
    question = f"{steps.strip()}\n\nShall the agent carry out this plan? Any other answer is sent to it."
    try:
        answer = await context.ask(ChoiceQuestion(question, [_APPROVE, _REJECT]))
    except NotAnswered as error:
        raise ToolError(f"the user did not answer ({error}): do not carry out the plan") from error
    if answer == _APPROVE:
        await context.begin()
        await context.keep(PLAN, steps)
        return "The user approves the plan: carry it out."
    if answer == _REJECT:
        return "The user rejects the plan: do not carry it out. Ask what is wanted instead."
    return f"The user wants changes: {answer}\nAmend the plan, and ask again."


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
