"""Agents that work on tasks in the background, each task in a separate session.

A task outlives the turn and the run that gave it, as long as the process lives. Its end is posted to the inbox of the
session that gave it, so the model gets it at the next safe point, once. Tasks that a crash cut off are resumed when
that session runs again: its log lists them.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from perdure._core.log.fold import State, fold_events
from perdure._core.log.redaction import REDACTED
from perdure._core.log.status import GIVEN_BY_SETTING, has_unreported_task
from perdure._core.log.store import (
    Post,
    SessionPlace,
    Store,
    cancel_and_await_tasks,
    finish_before_cancel,
    get_process_wide_session_key,
    read_events,
    run_to_completion,
    wait_despite_cancel,
)
from perdure._core.people.inbox import build_resolution_post
from perdure._core.permission.inherited import BackgroundTaskCaller, restrict_gate
from perdure._core.run.costs import find_spent_usd, find_used_tokens
from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.spec import SHUTDOWN_REASON, find_shutdown_signal
from perdure._core.run.stop import Limits, merge_limits
from perdure._core.tools.binding import build_unique_session_key, format_agent_chain
from perdure._core.values.clock import new_id
from perdure._core.values.error import (
    ConfigError,
    Fenced,
    PerdureError,
    SessionBusy,
    ShuttingDown,
    StoreError,
    ToolError,
)
from perdure._core.values.event import Entry, InboxResolved, RunEnded, RunStarted, SessionConfigured, SubagentFinished
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import error_message
from perdure._core.values.message import NO_USAGE, Message, Text, merge_labels
from perdure._runtime.agent.spec import AgentSpec
from perdure._runtime.resume.outcome import rebuild_outcome
from perdure._runtime.session.channel import DRAIN_SECONDS
from perdure._runtime.session.driver import detach_current_task, is_inside_run, leave_run_for_others, pass_post_to_run
from perdure._runtime.session.session import Session

from .child import DEPTH_SETTING, SHOWN_ANSWER_CHARACTERS, get_delegation_depth
from .end_report import record_task_end_report
from .jobs import BackgroundAgentTask, is_result_unreported, list_background_jobs
from .late_results import forward_late_inbox_results, forward_stranded_results
from .result import build_subagent_result

logger = logging.getLogger("perdure")

RESUME_PROMPT = "Your work was interrupted. Continue where you were, and complete the task that you were given."
"""The prompt for an agent whose run was cancelled, although its task was not."""
WITHDRAWN_REASON = "withdrawn"
"""The reason in the log of a task that was cancelled before it began."""
_MIN_COST_USD = 1e-9
BUSY_RETRY_SECONDS = 1.0
"""Seconds between attempts to run a session that another process drives."""
MAX_STORE_FAILURES = 5
"""Number of errors of the store after which a task is left to the next run of the session that gave it."""


TaskKey: TypeAlias = tuple[int, SessionPlace]
"""Identifies a task in this process: the id of its event loop, and its session."""

TaskWork: TypeAlias = Callable[[Run, BackgroundAgentTask], Coroutine[Any, Any, None]]
"""What this process does for a task of a run."""


class BackgroundAgents:
    """Runner and registry of the background tasks that sessions of this process give to other agents."""

    def __init__(
        self, agents: Mapping[str, AgentSpec[Any]], most_at_once: int, *, narrow_permission: bool = True
    ) -> None:
        self.agents = agents
        self.narrow_permission = narrow_permission
        """True if their calls need the consent of the gate of the agent that gives the tasks."""
        self._most_at_once = most_at_once
        self._semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        """Limits the tasks in progress, on each event loop."""
        self._tasks: dict[TaskKey, asyncio.Task[None]] = {}
        """The tasks in progress."""
        self._parent_runs: dict[TaskKey, Run] = {}
        """The last run of the session that gave each task: the task's events are published there."""
        self._sessions: dict[TaskKey, Session[Any]] = {}
        """The session in which each task is done."""
        self._leaving: set[asyncio.Task[None]] = set()
        """Tasks that this process leaves to the next one, because the block of the agent ends."""

    # -- for the tools -------------------------------------------------------------------------------------------------

    def start_task(self, run: Run, job: BackgroundAgentTask) -> "asyncio.Task[None]":
        """Start or resume a background task, and return its asyncio task; the same one while it is in progress."""
        return self._track_task(run, job, self._run_and_post_answer)

    def _track_task(
        self,
        run: Run,
        job: BackgroundAgentTask,
        work: "Callable[[Run, BackgroundAgentTask], Coroutine[Any, Any, None]]",
    ) -> "asyncio.Task[None]":
        """Return the asyncio task that works on a background task; a new one that does this work if there is none."""
        key = _task_key(run.log.store, job)
        self._parent_runs[key] = run
        task = self._tasks.get(key)
        if task is None or task.done():  # asyncio calls back some steps after a task is done
            task = self._tasks[key] = asyncio.ensure_future(work(run, job))
            task.add_done_callback(lambda done: self._remove_task(key, done))
        return task

    async def record_task(self, run: Run, job: BackgroundAgentTask) -> None:
        """Store the task in a log of its own, so that a worker finds it even if this process ends before it begins.

        A cancel is raised once it is stored. If it cannot be stored now, the task tries that again when it begins.
        """
        try:
            await finish_before_cancel(lambda: self._begin_log(run, job))
        except (SessionBusy, StoreError) as error:
            logger.warning("agent %s of session %s has no log yet: %s", job.handle, run.full_session_id, error)

    async def _begin_log(self, run: Run, job: BackgroundAgentTask) -> None:
        """Store the first entry of the task's log, which names the session that gave it, unless it is there."""
        if not (await _read_task_state(run, job)).settings:
            note = SessionConfigured({DEPTH_SETTING: get_delegation_depth(run) + 1, GIVEN_BY_SETTING: run.session_id})
            session = self._build_session(run, job)
            await session._append_events(note, begin=True)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the same package

    def _remove_task(self, key: TaskKey, done: "asyncio.Task[None]") -> None:
        """Remove a finished task, unless it has been started again."""
        if self._tasks[key] is done:
            del self._tasks[key], self._parent_runs[key]
            self._sessions.pop(key, None)

    async def wait_for_tasks(self, run: Run, jobs: Sequence[BackgroundAgentTask], seconds: float) -> None:
        """Wait until all of these tasks are done, at most this many seconds; start those that are not in progress."""
        unfinished: set[asyncio.Future[None]] = {
            self.start_task(run, job) for job in jobs if is_result_unreported(run, job)
        }
        timer = asyncio.ensure_future(run.clock.sleep(seconds))
        try:
            while unfinished and not timer.done():
                await asyncio.wait((*unfinished, timer), return_when=asyncio.FIRST_COMPLETED)
                unfinished = {task for task in unfinished if not task.done()}
        finally:
            await cancel_and_await_tasks((timer,))

    async def cancel_task(self, run: Run, job: BackgroundAgentTask) -> None:
        """Cancel a background task, even if another process works on it.

        A result that has reached its agent meanwhile is passed to the session that gave the task.
        """
        if job.agent not in self.agents:
            raise ToolError(f"{job.agent!r} is not an agent of this program: cancel {job.handle} where it is one")
        task = self._tasks.get(_task_key(run.log.store, job))
        if task is not None:
            await cancel_and_await_tasks((task,))
        await self._build_session(run, job).cancel()  # stops it in another process, if one works on it
        try:
            await self._record_end_before_begin(run, job, "cancelled", WITHDRAWN_REASON)
        except (SessionBusy, StoreError):  # another process works on it, and has been told
            return
        await forward_late_inbox_results(run.log.store, job.session_id, run.clock)

    async def get_task_status(self, run: Run, job: BackgroundAgentTask) -> tuple[str, str]:
        """Return the status of a task, and its agent's answer (empty until the task is over)."""
        return self._derive_status(run, job, await _read_task_state(run, job))

    async def read_task_labels(self, run: Run, jobs: Iterable[BackgroundAgentTask]) -> tuple[str, ...]:
        """Return the labels of all that the agents of these tasks have seen, and their answers may follow from."""
        return merge_labels(*[(await _read_task_state(run, job)).labels for job in jobs])

    def _derive_status(self, run: Run, job: BackgroundAgentTask, state: State) -> tuple[str, str]:
        """Derive the status and answer of a task from the state of its session."""
        in_progress = _task_key(run.log.store, job) in self._tasks
        past = [each for each in state.runs_by_input_id.values() if each.run_ended_event is not None]
        if state.is_interrupted or not past:
            if not is_result_unreported(run, job):
                return "cancelled", ""
            is_asking = state.is_waiting and bool(state.open_questions)
            return ("waiting" if is_asking else "running" if in_progress else "interrupted"), ""
        last = past[-1]
        assert last.run_ended_event is not None  # noqa: S101 - filtered above
        outcome = rebuild_outcome(job.session_id, state, last, last.run_ended_event)
        return outcome.status, str(build_subagent_result(job.agent, outcome).content)

    async def resolve_inbox_items(self, run: Run, answers: Mapping[BackgroundAgentTask, str], *events: Event) -> None:
        """Mark the inbox items of tasks as answered when the model gets the answers in another way."""
        pending = {job: answer for job, answer in answers.items() if is_result_unreported(run, job)}
        for job in pending:
            run.mailbox.drop_post(job.post_id)
        resolved = [
            InboxResolved(job.item_id, answer, run.clock.now(), tuple((await _read_task_state(run, job)).labels))
            for job, answer in pending.items()
        ]
        if resolved:
            await run.emit(*map(run.stamp_event, (*resolved, *events)), entry_ids=[job.post_id for job in pending])
        for job in pending:
            await self._record_report(run, job)

    async def _record_report(self, run: Run, job: BackgroundAgentTask) -> None:
        """Record in the log of a task that its end was reported; a task in progress does so itself when it ends."""
        if job.agent in self.agents and _task_key(run.log.store, job) not in self._tasks:
            await record_task_end_report(self._build_session(run, job))

    # -- for the extension ---------------------------------------------------------------------------------------------

    async def resume_and_report_tasks(self, run: Run) -> None:
        """Before each request, resume tasks that a crash interrupted, and emit `SubagentFinished` for ended ones."""
        if run.path or run.state.unsettled_reply is not None:
            return
        for job in self._list_pending_tasks(run.state, run.log.store):
            if _task_key(run.log.store, job) not in self._tasks:
                await self.record_task(run, job)
        await self._report_ended_tasks(run)
        self.resume_tasks(run)
        if not run.state.turns:  # a process may have died in the middle of that: found once, before the first request
            await self._resume_tasks_below(run)
        for job in list_background_jobs(run.state, run.log.store):
            if not is_result_unreported(run, job) and job.call_id in run.state.subagents:
                state = await _read_task_state(run, job)
                if has_unreported_task(state.settings):
                    await self._record_report(run, job)  # a process died before it could
                await run.emit(run.stamp_event(self._build_subagent_finished(run, job, state)))

    async def report_ended_tasks(self, run: Run) -> None:
        """Post the answers of tasks that have ended, if their process died before it could, and resume what the agents
        of such tasks have left unfinished.
        """
        await self._report_ended_tasks(run)
        await self._resume_tasks_below(run)

    async def _report_ended_tasks(self, run: Run) -> None:
        for job in self._list_pending_tasks(run.state, run.log.store):
            if _task_key(run.log.store, job) not in self._tasks:
                await finish_before_cancel(partial(self._post_answer_if_over, run, job))

    async def _resume_tasks_below(self, run: Run) -> None:
        """Resume the tasks that agents gave to others before their own was over, if a crash cut those off.

        No run of these agents does so: the session of each is woken, and is not told of a result.
        """
        for job in await forward_stranded_results(run.log.store, run.session_id, run.state, run.clock):
            if job.agent in self.agents:
                self._track_task(run, job, self._wake_agent_whose_task_is_over)

    async def _wake_agent_whose_task_is_over(self, run: Run, job: BackgroundAgentTask) -> None:
        detach_current_task()
        session = self._sessions[_task_key(run.log.store, job)] = self._build_session(run, job)
        try:
            await session.wake()
            await session.wait_for_agents()
            await forward_late_inbox_results(run.log.store, job.session_id, run.clock)
        except PerdureError as error:  # a worker, or the next run of the session above, tries it again
            words = "what agent %s of session %s has left cannot be resumed: %s"
            logger.warning(words, job.handle, run.full_session_id, error)

    def resume_tasks(self, run: Run) -> None:
        """Start or resume every unfinished task of the session; this run publishes their events from now on."""
        for job in self._list_pending_tasks(run.state, run.log.store):
            self.start_task(run, job)

    def has_unfinished_tasks(self, state: State, posts: Sequence[Post], store: Store) -> bool:
        """Return True if a session has tasks whose end is not posted and that this process does not work on."""
        posted = {post.id for post in posts}
        left = [job for job in self._list_pending_tasks(state, store) if job.post_id not in posted]
        return any(_task_key(store, job) not in self._tasks for job in left)

    def list_tasks(self, place: SessionPlace) -> "list[asyncio.Task[None]]":
        """Return the asyncio tasks on the running event loop that work for the session at this place."""
        here = id(asyncio.get_running_loop())
        return [
            task
            for key, task in self._tasks.items()
            if key[0] == here and _locate_run(self._parent_runs[key]) == place and not task.done()
        ]

    def _list_pending_tasks(self, state: State, store: Store) -> list[BackgroundAgentTask]:
        """Return the tasks of a session that have no answer yet and whose agent is known here."""
        jobs = list_background_jobs(state, store)
        return [job for job in jobs if job.item_id in state.inbox and job.agent in self.agents]

    def _build_subagent_finished(self, run: Run, job: BackgroundAgentTask, state: State) -> SubagentFinished:
        """Build the `SubagentFinished` event of a task, with its usage and cost."""
        status, answer = self._derive_status(run, job, state)
        ends = [past.run_ended_event for past in state.runs_by_input_id.values() if past.run_ended_event is not None]
        usage, costs = sum([each.usage for each in ends], NO_USAGE), [each.cost_usd for each in ends]
        cost_usd = None if None in costs else sum([each or 0.0 for each in costs])
        return SubagentFinished(job.call_id, job.agent, status, answer[:SHOWN_ANSWER_CHARACTERS], usage, cost_usd)

    @asynccontextmanager
    async def lifespan(self, _agent: AgentSpec[Any]) -> AsyncGenerator[None]:
        """Stop all tasks of this event loop when `async with agent` is left; the next process resumes them.

        Without that block, tasks outlive the runs.
        """
        for_one_run = is_inside_run()
        try:
            yield
        finally:
            if not for_one_run:
                here = asyncio.get_running_loop()
                tasks = {task: key for key, task in self._tasks.items() if task.get_loop() is here}
                fanouts = {run.fanout for key, run in self._parent_runs.items() if key[0] == id(here)}
                self._leaving.update(tasks)
                for task, key in tasks.items():
                    session = self._sessions.get(key)
                    driver = None if session is None else session._driver  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the same package
                    if driver is None or not leave_run_for_others(driver, SHUTDOWN_REASON):
                        task.cancel()
                is_cancelled = await wait_despite_cancel(tasks)
                self._leaving.difference_update(tasks)
                for fanout in fanouts:  # so that watchers hear how the tasks ended
                    await finish_before_cancel(partial(fanout.drain, DRAIN_SECONDS))
                if is_cancelled:
                    raise asyncio.CancelledError

    # -- one task ------------------------------------------------------------------------------------------------------

    async def _run_and_post_answer(self, run: Run, job: BackgroundAgentTask) -> None:
        """Run a task to its end, and post the answer to the inbox of the session that gave it."""
        detach_current_task()
        try:
            outcome = await self._run_until_over(run, job)
            if outcome.status == "waiting":  # this process has left it to the next one
                return
            text = str(build_subagent_result(job.agent, outcome).content)
        except asyncio.CancelledError:
            await run_to_completion(self._post_answer_if_over(run, job))
            raise
        except ShuttingDown:  # before it could begin
            return
        except StoreError as unusable:  # the task is not over: it is resumed when that session runs again
            logger.warning("agent %s of session %s cannot be driven: %s", job.handle, run.full_session_id, unusable)
            return
        except Exception as failure:  # reported to the session that gave the task
            error = run.redaction.redact_error(failure)
            logger.warning("agent %s of session %s failed", job.handle, run.full_session_id, exc_info=error)
            text = f"{job.agent} failed ({error_message(error)})."
            await finish_before_cancel(lambda: self._post_answer(run, job, text))
            await finish_before_cancel(lambda: self._record_failure(run, job, error))
            return
        await finish_before_cancel(lambda: self._post_answer(run, job, text))

    async def _post_answer(self, run: Run, job: BackgroundAgentTask, text: str) -> None:
        """Post the answer of a task to the inbox of the session that gave it. A second time it adds nothing."""
        try:
            labels = tuple((await _read_task_state(run, job)).labels)
            post = build_resolution_post(job.item_id, text, run.clock.now(), labels)
            await forward_late_inbox_results(run.log.store, job.session_id, run.clock)
            if await run.log.store.post(run.session_id, post):
                pass_post_to_run(_locate_run(run), post)
        except PerdureError as error:  # it is posted when that session runs again
            words = "the end of agent %s of session %s cannot be posted: %s"
            logger.warning(words, job.handle, run.full_session_id, error)
            return
        await record_task_end_report(self._build_session(run, job))

    async def _post_answer_if_over(self, run: Run, job: BackgroundAgentTask) -> None:
        """Post the answer of a task that had ended when its asyncio task was cancelled, or its process died.

        Otherwise nothing would tell of it: its run is over, and so is that of the session which gave it.
        """
        try:
            status, answer = self._derive_status(run, job, await _read_task_state(run, job))
        except StoreError as unusable:
            logger.warning("agent %s of session %s cannot be read: %s", job.handle, run.full_session_id, unusable)
            return
        if status not in {"running", "waiting", "interrupted", "cancelled"}:
            await self._post_answer(run, job, answer)

    async def _record_failure(self, run: Run, job: BackgroundAgentTask, error: BaseException) -> None:
        """Store that a task could not begin, so that no other process tries it again."""
        try:
            await self._record_end_before_begin(run, job, "failed", type(error).__name__, error_message(error))
        except (SessionBusy, StoreError) as unusable:
            words = "the end of agent %s of session %s cannot be stored: %s"
            logger.warning(words, job.handle, run.full_session_id, unusable)

    async def _record_end_before_begin(
        self, run: Run, job: BackgroundAgentTask, status: str, reason: str, error: str = ""
    ) -> None:
        """Store the end of a task whose log has no run yet: it would be taken for one that is still to be done."""
        state = await _read_task_state(run, job)
        if state.settings and state.run is None:
            started = RunStarted(job.agent, input_id=job.handle, run_id=new_id())
            ended = RunEnded(status, reason, error, run_id=started.run_id)
            session = self._build_session(run, job)
            await session._append_events(started, ended)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the same package

    async def _run_until_over(self, run: Run, job: BackgroundAgentTask) -> Outcome[Any]:
        """Run a task until it is over: retry while another process runs it, and wait for answers it needs.

        If this process leaves the task to another one, return its `waiting` outcome. Raises `StoreError` if the store
        cannot be used for a while. Then nothing is known about the end of the task.
        """
        session = self._sessions[_task_key(run.log.store, job)] = self._build_session(run, job)
        failures = 0
        while True:
            try:
                if self._get_semaphore().locked():
                    await self.record_task(run, job)  # a worker may find it while it waits for its turn
                async with self._get_semaphore():
                    outcome = await self._run_session_once(session, run, job)
                if outcome.status != "waiting" or not outcome.questions or asyncio.current_task() in self._leaving:
                    return outcome
                async for outcome in session.attend():
                    if outcome.error is not None and not outcome.run_id:
                        raise outcome.error  # of `attend` itself: the run has not ended
                    if outcome.status != "waiting" or not outcome.questions or asyncio.current_task() in self._leaving:
                        return outcome
            except (SessionBusy, Fenced):  # another process works on it, or has taken it over and may not finish it
                await run.clock.sleep(BUSY_RETRY_SECONDS)
            except StoreError:
                failures += 1
                if failures >= MAX_STORE_FAILURES:
                    raise
                await run.clock.sleep(BUSY_RETRY_SECONDS * 2**failures)

    async def _run_session_once(self, session: "Session[Any]", run: Run, job: BackgroundAgentTask) -> Outcome[Any]:
        """Start the task in its session or resume it; return the recorded outcome if it is over."""
        state = await _read_task_state(run, job)
        if not state.settings:
            await self._begin_log(run, job)
        name, *later = [*state.runs_by_input_id] or [job.handle]
        if job.task == REDACTED and not state.runs_by_input_id:
            raise ConfigError("the task was redacted from the log before it was started")
        last = later[-1] if later else name
        past = state.runs_by_input_id.get(last)
        ended = None if past is None else past.run_ended_event
        if ended is not None and ended.status == "cancelled" and ended.reason != WITHDRAWN_REASON:
            await forward_late_inbox_results(run.log.store, job.session_id, run.clock)  # if it died while it did that
            return await session.run(RESUME_PROMPT, input_id=f"{name}.{len(later) + 1}")
        return await session.run(_build_task_message(run, job), input_id=last)

    def _build_session(self, run: Run, job: BackgroundAgentTask) -> "Session[Any]":
        """Build the session of a task.

        Its agent inherits budgets, gate, deps and limits from the run that gave the task.
        """
        agent = self.agents[job.agent]
        process_end = find_shutdown_signal(run.engine)
        inherited = agent.replace(
            engine=agent.engine if process_end is None else process_end.wrap_engine(agent.engine),
            permission=restrict_gate(agent.permission, run.gate, _build_caller_identity(run))
            if self.narrow_permission or agent.permission is None
            else agent.permission,
            deps=run.deps if agent.deps is None else agent.deps,
            interactive=agent.interactive and run.options.interactive,
            limits=_restrict_limits(run, agent.limits),
            watchers=[*agent.watchers, self._build_event_forwarder(run, job)],
        )
        return Session(inherited, job.session_id, run.log.store, redaction=run.redaction, budgets=run.spec.budgets)

    def _build_event_forwarder(self, run: Run, job: BackgroundAgentTask) -> Any:
        """Return a watcher that republishes the events of a task's session in the session that gave the task."""
        key = _task_key(run.log.store, job)

        async def show_above(entry: Entry) -> None:
            above, event = self._parent_runs.get(key, run), entry.event
            path = f"{job.handle}/{event.path}" if event.path else job.handle
            above.publish(msgspec.structs.replace(event, path=path, run_id=f"{above.run_id}/{job.handle}"))

        return show_above

    def _get_semaphore(self) -> asyncio.Semaphore:
        """Return the semaphore of this event loop that limits the tasks in progress."""
        return self._semaphores.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._most_at_once))


def _build_caller_identity(run: Run) -> BackgroundTaskCaller:
    """Return the session, agent and run that give a task, for the gate of the background agent."""
    return BackgroundTaskCaller(
        run.session_id, build_unique_session_key(run.full_session_id, run.state), format_agent_chain(run), run.run_id
    )


def _restrict_limits(run: Run, limits: Limits) -> Limits:
    """Return the limits of a task, with tokens and cost reduced to what is left of those of the run that gives it."""
    tokens, cost_usd = run.limits.token_budget, run.limits.max_cost_usd
    left = Limits(
        token_budget=None if tokens is None else max(1, tokens - find_used_tokens(run)),
        max_cost_usd=None if cost_usd is None else max(_MIN_COST_USD, cost_usd - find_spent_usd(run)),
    )
    return merge_limits(limits, left)


def _task_key(store: Store, job: BackgroundAgentTask) -> TaskKey:
    return id(asyncio.get_running_loop()), get_process_wide_session_key(store, job.session_id)


def _locate_run(run: Run) -> SessionPlace:
    return get_process_wide_session_key(run.log.store, run.session_id)


def _build_task_message(run: Run, job: BackgroundAgentTask) -> Message:
    """Build the first message of a task, with the labels of everything that the agent which wrote it has seen."""
    sources = (f"agent:{run.agent_name}",)
    return Message("user", (Text(job.task),), sources=sources, labels=tuple(run.state.labels))


async def _read_task_state(run: Run, job: BackgroundAgentTask) -> State:
    """Compute the state of a task from the log of its session."""
    events, _ = await read_events(run.log.store, job.session_id)
    return fold_events(events)
