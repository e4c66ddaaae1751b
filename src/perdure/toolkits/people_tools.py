"""The tools `ask_user` and `plan`: the model asks the user a question, or shows a plan for approval.

The answer may come days later, from another process: until then a call has no effect, and can run again.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from perdure.core.display_slot import Askable
from perdure.core.error import NotAnswered, ToolError
from perdure.core.tool import Tool, ToolContext, tool

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
