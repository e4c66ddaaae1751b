"""The `planner` engine: the model plans tasks, does each in a separate run, and answers from their results."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.json_reply import list_json_values
from perdure._core.run.answers import FallbackAnswer, add_fallback_answer
from perdure._core.run.loop import react
from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.spec import Accepted, Engine, OutputValidator, PrivateRunTask, Retry
from perdure._core.tools.tool import Tool
from perdure._core.values import checks
from perdure._core.values.engine_event import PlanMade, PlannedTask
from perdure._core.values.message import Message

from .planner_tasks import PlannerTasks, TaskScheduler
from .private_run import (
    EngineRunStopped,
    add_reminder,
    compute_private_turn_limit,
    deliver_and_compact,
    find_work_index,
    has_continued_with_follow_up,
    is_answered,
    keep_budget_for_answer,
    run_privately,
)

MAX_DESCRIPTION_CHARACTERS = 4000
MAX_ID_CHARACTERS = 60

_DESCRIPTION_KEYS = ("description", "task", "title")
_DEPENDENCY_KEYS = ("depends_on", "dependsOn", "dependencies")


class ParsedPlan(Struct, frozen=True):
    """The tasks of a parsed plan, freed of duplicate ids, unknown dependencies and cycles; and the mistakes found."""

    tasks: tuple[PlannedTask, ...] = ()
    problems: tuple[str, ...] = ()


def parse_plan(text: str, max_tasks: int, known_ids: Collection[str] = ()) -> ParsedPlan:
    """Parse the plan in a reply: a JSON list of tasks, or an object with such a list as `tasks`.

    Tasks may depend on one another and on `known_ids`, the tasks of earlier plans. A mistake is corrected, and named in
    `problems`.
    """
    lists = [items for each in list_json_values(text) if (items := _get_items(each)) is not None]
    if not lists:
        return ParsedPlan(problems=("there is no JSON list of tasks in the reply",))
    # A reply may have other lists, such as [1] for a note: the first with an object in it is the plan
    items = next((each for each in lists if any(isinstance(item, dict) for item in each)), lists[0])
    problems: list[str] = []
    drafts = _read_tasks(items, problems)
    if len(drafts) > max_tasks:
        problems.append(f"it has {len(drafts)} tasks, and at most {max_tasks} are allowed")
        drafts = drafts[:max_tasks]
    tasks = _rename_duplicates(drafts, known_ids, problems)
    return ParsedPlan(_correct_dependencies(tasks, known_ids, problems), tuple(problems))


def _get_items(value: object) -> Sequence[Any] | None:
    """Return a list, or that in the field `tasks` of an object; `None` if there is none."""
    listed = cast("dict[str, Any]", value).get("tasks") if isinstance(value, dict) else value
    return cast("Sequence[Any]", listed) if isinstance(listed, list) else None


def _read_tasks(items: Sequence[Any], problems: list[str]) -> list[PlannedTask]:
    """Read each item as a task: an object, or its description alone."""
    tasks: list[PlannedTask] = []
    for number, item in enumerate(items, 1):
        fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {"description": item}
        description = _get_text(fields, _DESCRIPTION_KEYS)
        if not description:
            problems.append(f"task {number} has no description")
            continue
        task_id = _get_text(fields, ("id",))[:MAX_ID_CHARACTERS] or str(number)
        needed = tuple(dict.fromkeys(_list_dependencies(fields)))
        tasks.append(PlannedTask(task_id, description[:MAX_DESCRIPTION_CHARACTERS], needed))
    return tasks


def _get_text(fields: Mapping[str, Any], keys: Iterable[str]) -> str:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return ""


def _list_dependencies(fields: Mapping[str, Any]) -> list[str]:
    for key in _DEPENDENCY_KEYS:
        value: Any = fields.get(key)
        if isinstance(value, (str, int)):
            return [str(value).strip()]
        if (items := _get_items(value)) is not None:
            return [str(each).strip()[:MAX_ID_CHARACTERS] for each in items if isinstance(each, (str, int))]
    return []


def _rename_duplicates(
    tasks: Sequence[PlannedTask], known_ids: Collection[str], problems: list[str]
) -> list[PlannedTask]:
    """Rename tasks with a duplicate id; dependencies on such an id mean the first task that has it."""
    taken, unique = set(known_ids), list[PlannedTask]()
    for task in tasks:
        task_id, number = task.id, 1
        while task_id in taken:
            number += 1
            task_id = f"{task.id}-{number}"
        if task_id != task.id:
            problems.append(f"two tasks have the id {task.id!r}")
        taken.add(task_id)
        unique.append(PlannedTask(task_id, task.description, task.depends_on))
    return unique


def _correct_dependencies(
    tasks: Sequence[PlannedTask], known_ids: Collection[str], problems: list[str]
) -> tuple[PlannedTask, ...]:
    """Leave out dependencies on tasks that do not exist, and those that close a cycle."""
    needed: dict[str, list[str]] = {task.id: [] for task in tasks}
    for task in tasks:
        for other in task.depends_on:
            if other not in needed and other not in known_ids:
                problems.append(f"task {task.id!r} depends on {other!r}, which does not exist")
            elif other in needed and _needs(needed, other, task.id):
                problems.append(f"task {task.id!r} depends on itself through {other!r}")
            else:
                needed[task.id].append(other)
    return tuple([PlannedTask(each.id, each.description, tuple(needed[each.id])) for each in tasks])


def _needs(needed: Mapping[str, Sequence[str]], task_id: str, wanted: str) -> bool:
    """Return True if a task is another one, or depends on it, directly or through others."""
    left, seen = [task_id], set[str]()
    while left:
        current = left.pop()
        if current == wanted:
            return True
        if current not in seen:
            seen.add(current)
            left += needed.get(current, ())
    return False


PLAN_PROMPT = (
    "Make a plan for the last message above; do not carry it out. Split the work into tasks that can be done one by "
    "one or, where they do not need one another, at the same time. The worker of a task sees this conversation, the "
    "task and the results of the tasks that it depends on. At most {max_tasks} tasks; as few as needed, and an empty "
    "list if the message can be answered at once.\n\n{tools}\n\n"
    'Reply with JSON alone: [{{"id": "a", "description": "…", "depends_on": []}}, …]'
)
REPLAN_PROMPT = (
    "The plan for the last message above did not work out as a whole:\n\n{report}\n\nMake a plan for what is left, in "
    "another way where a task has failed. Tasks may depend on the ids of tasks that are done. An empty list if the "
    "message can be answered from what is done, or nothing else can be tried. At most {max_tasks} tasks.\n\n{tools}\n\n"
    'Reply with JSON alone: [{{"id": "…", "description": "…", "depends_on": []}}, …]'
)
RESULTS_TEXT = (
    "The work on the last message was split into tasks, which have been carried out:\n\n{report}\n\nWrite the complete "
    "answer from these results. Say plainly what could not be done. Do not mention the tasks themselves."
)
_PLAN_REPAIRS = 2
_PLAN_TURNS = 5
_REPAIR_ORIGIN = "plan"


def planner(
    *,
    max_tasks: int = 12,
    max_parallel_tasks: int = 4,
    max_task_turns: int = 12,
    max_replans: int = 2,
) -> Engine:
    """Build the engine that has the model plan tasks, carry out each in a separate run, and answer from the results.

    Tasks that do not depend on one another run at the same time. Each is a private run with the tools, permissions and
    limits of the run; so is each plan, which is a `PlanMade` in the log. If a task fails, the model plans what is left
    again. The answer is a turn of the conversation. Without a plan, the model answers as with `react`.

    A turn and a fifth of the tokens, the money and the time are kept for the answer, also of a shared budget. If they
    are not enough, or the answer fails, or the run is cancelled, the results of the tasks are the last message of the
    conversation and the text of the outcome.

    Args:
        max_tasks: The most tasks of one plan.
        max_parallel_tasks: The most tasks at the same time; one if a tool of the agent must not run beside others
            (`parallel=False`), or if `Limits(max_tool_calls=…)` is set, whose count would not be exact otherwise.
        max_task_turns: Replies of the model for each task. They count towards the limits of the run as well, of which
            one turn is left for the answer.
        max_replans: How often what is left is planned again.
    """
    for name, value in (("max_tasks", max_tasks), ("max_parallel_tasks", max_parallel_tasks)):
        checks.require_int("planner", name, value, 1)
    checks.require_int("planner", "max_task_turns", max_task_turns, 1)
    checks.require_int("planner", "max_replans", max_replans)
    return PlannerEngine(max_tasks, max_parallel_tasks, max_task_turns, max_replans)


class PlannerEngine:
    """Engine that has the model make a plan, carries out its tasks, and has the model answer from their results."""

    name = "planner"

    def __init__(self, max_tasks: int, max_parallel_tasks: int, max_task_turns: int, max_replans: int) -> None:
        self._max_tasks = max_tasks
        self._max_parallel_tasks = max_parallel_tasks
        self._max_task_turns = max_task_turns
        self._max_replans = max_replans

    async def __call__(self, run: Run) -> Outcome[Any]:
        """Perform a run."""
        await deliver_and_compact(run)
        board = PlannerTasks(find_work_index(run))
        add_fallback_answer(run, lambda _: _find_results(board))
        try:
            with keep_budget_for_answer(run):
                await self._work_on_plans(run, board)
        except EngineRunStopped as stop:
            return stop.outcome
        report = RESULTS_TEXT.format(report=board.describe()) if board.tasks else ""
        add_reminder(run, self.name, lambda run: None if _has_continued(run, board) else report or None)
        outcome = await react(run)
        if board.reached_limit and is_answered(run, outcome):
            return replace(outcome, status="limit", reason=board.reached_limit)
        return outcome

    async def _work_on_plans(self, run: Run, board: PlannerTasks) -> None:
        """Make a plan and carry it out; plan again what has failed."""
        scheduler = TaskScheduler(run, board, self._max_parallel_tasks, self._max_task_turns)
        for revision in range(self._max_replans + 1):
            made = await self._make_plan(run, board, revision)
            board.add_plan(made.tasks)
            if not made.tasks:
                return
            await scheduler.carry_out_tasks()
            if board.is_complete or board.reached_limit:
                return

    async def _make_plan(self, run: Run, board: PlannerTasks, revision: int) -> PlanMade:
        """Return the plan of this number: from the log, or a new one of the model."""
        steps = [each for each in run.state.engine_steps if isinstance(each, PlanMade)]
        plans = [each for each in steps if each.work_index == board.work_index]
        if revision < len(plans):
            return plans[revision]
        parsed = await self._ask_for_plan(run, board, revision)
        made = PlanMade(parsed.tasks, revision, parsed.problems, board.work_index)
        await run.emit(run.stamp_event(made))
        return made

    async def _ask_for_plan(self, run: Run, board: PlannerTasks, revision: int) -> ParsedPlan:
        """Ask the model for a plan, unless the last turn of the run is left, which is for the answer."""
        name = f"plan:{board.work_index}:{revision}"
        max_turns = compute_private_turn_limit(run, name, _PLAN_TURNS)
        if not max_turns:
            return ParsedPlan(problems=("there is no plan: the last turn is for the answer",))
        answer = await run_privately(run, self._build_plan_task(run, board, name, max_turns))
        if answer.is_done:
            return parse_plan(answer.text, self._max_tasks, board.done_ids)
        return ParsedPlan(problems=(f"there is no plan: {answer.status} {answer.reason}".strip(),))

    def _build_plan_task(self, run: Run, board: PlannerTasks, name: str, max_turns: int) -> PrivateRunTask:
        words = PLAN_PROMPT if not board.tasks else REPLAN_PROMPT
        done = tuple(board.done_ids)
        return PrivateRunTask(
            name=name,
            prompt=words.format(
                max_tasks=self._max_tasks, tools=describe_tools(tuple(run.offered_tools)), report=board.describe()
            ),
            max_turns=max_turns,
            output_validators=[make_plan_validator(self._max_tasks, done)],
        )


def _find_results(board: PlannerTasks) -> FallbackAnswer | None:
    """Return the results of the tasks so far, for a run that ends without an answer."""
    return FallbackAnswer(board.describe(max_characters=None), board.work_index) if board.has_results else None


def _has_continued(run: Run, board: PlannerTasks) -> bool:
    return has_continued_with_follow_up(run, board.work_index)


def make_plan_validator(max_tasks: int, known_ids: Sequence[str]) -> OutputValidator:
    """Make an output validator that asks the model to correct its plan, a limited number of times."""

    def check_plan(run: Run, reply: Message) -> Accepted | Retry:
        problems = parse_plan(reply.text, max_tasks, known_ids).problems
        repairs = sum([each.origin == _REPAIR_ORIGIN for each in run.messages])
        if not problems or repairs >= _PLAN_REPAIRS:
            return Accepted()
        found = "; ".join(problems[:5])
        return Retry(f"This plan cannot be used: {found}. Reply with the corrected JSON list alone.", _REPAIR_ORIGIN)

    return check_plan


def describe_tools(tools: Sequence[Tool[..., Any]]) -> str:
    """Return the names and first description lines of tools as text, for the prompt that asks for a plan."""
    if not tools:
        return "There are no tools."
    lines = [f"- {each.name}: {each.description.strip().partition(chr(10))[0]}" for each in tools]
    return "\n".join(["These tools are there for the tasks:", *lines])
