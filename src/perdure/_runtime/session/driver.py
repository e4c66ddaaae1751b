"""The driver of a session, which executes its commands (run, resume, wake, …) in this process, one at a time.

A command goes through four phases. *Open*: wait for other commands, acquire the lease. *Prepare*: read the log, decide
how the run begins, and build it. *Run*: store its first events, then run the loop in a separate task. *Close*: wait for
watchers to catch up, release the lease. A second command waits until the first has ended.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, cast

import msgspec

from perdure._core.log.fold import State
from perdure._core.log.past_runs import RunWithInputId
from perdure._core.log.redaction import REDACTED, RelatedRunsRedaction
from perdure._core.log.repair import (
    ENDING_CRASH_LOOP,
    ENDING_LOG_DAMAGED,
    ENDING_PROCESS_DIED,
    ENDING_UNANSWERED,
    build_repair_events,
)
from perdure._core.log.status import GIVEN_BY_SETTING, build_lost_entries_error, build_lost_input_error
from perdure._core.log.store import (
    EntryIdSource,
    Lease,
    Log,
    Post,
    SessionPlace,
    Store,
    finish_before_cancel,
    get_namespaced_session_id,
    read_events,
    run_to_completion,
)
from perdure._core.model.budget import Budget
from perdure._core.model.cache import PrefixComparer
from perdure._core.model.protocol import Model
from perdure._core.people.mailbox import CANCEL_POST, Mailbox
from perdure._core.run.calling_run import (
    add_labels_of_caller,
    enter_run,
    get_calling_run,
    label_calling_run,
    list_seen_labels,
)
from perdure._core.run.costs import count_past_usage, count_unreported_entries
from perdure._core.run.loop import execute, react
from perdure._core.run.outcome import Outcome, select_run_entries
from perdure._core.run.run import Run, SimulatedCrash
from perdure._core.run.spec import (
    CancelMode,
    Engine,
    RunPlace,
    find_shutdown_signal,
    get_engine_name,
    raise_if_shutting_down,
)
from perdure._core.values import faults
from perdure._core.values.clock import get_steady_time
from perdure._core.values.error import SessionNotFound, UsageError
from perdure._core.values.event import Entry, MessageAdded, RunEnded, RunResumed, RunStarted, SessionOpened, SkillLoaded
from perdure._core.values.event_class import Event
from perdure._engines.registry import open_engine
from perdure._runtime.agent.active import get_active_agent
from perdure._runtime.agent.build import build_run, check_deps
from perdure._runtime.agent.extension import Extension
from perdure._runtime.agent.output import end_run_on_answer
from perdure._runtime.agent.overrides import (
    RunOverrides,
    encode_overrides,
    merge_overrides,
    parse_stored_output,
    restore_overrides,
)
from perdure._runtime.agent.redaction import add_agent_redactors, check_id_for_secrets, redact_input_id
from perdure._runtime.agent.spec import AgentSpec
from perdure._runtime.resume.outcome import rebuild_outcome
from perdure._runtime.resume.reasons import CALL_OPTION, check_agent_of_run, find_resume_reasons, is_resumable
from perdure._runtime.tasks import mark_exception_retrieved, start_task_eagerly

from .channel import (
    SessionChannel,
    SessionChannelHandle,
    drain_and_remove_watchers,
    hold_command_turn,
    remove_no_watchers,
)
from .commands import (
    CallToolCommand,
    CompactCommand,
    DriverCommand,
    ResumeCommand,
    RunPromptCommand,
    RunStartValues,
    WakeCommand,
)
from .posts import PostPoller, add_earlier_posts, fill_mailbox, promote_follow_ups

logger = logging.getLogger("perdure")

MAX_RECOVERIES = 3
"""The number of resumes without progress after which a run is parked."""

NOTHING_NEW = "nothing_new"
"""The reason of an outcome without a run: there was nothing to continue with."""

_CANCEL_URGENCY: Mapping[str | None, int] = {"after_turn": 1, "after_tools": 2, "now": 3}
"""Cancel modes by urgency. A later cancel may be more urgent, and never less."""

_NOTHING_TO_OPEN = nullcontext()

_current_sessions: ContextVar[frozenset[SessionPlace]] = ContextVar("perdure_driving", default=frozenset())
"""The sessions whose runs the current task is part of: a tool must not wait for its own session."""

session_additions: "dict[SessionPlace, AddedExtensionsAndModels]" = {}
"""Extensions and model objects that sessions were given in this process."""

_active_drivers: dict[SessionPlace, "tuple[SessionDriver, asyncio.AbstractEventLoop]"] = {}
"""The drivers of this process that have a session's lease, and their event loops, so that posts reach a run at once."""


class AddedExtensionsAndModels(msgspec.Struct):
    """Extensions and model objects that were added to one session, kept in this process."""

    store: Store
    """Its store, which is kept alive: the additions are found by its identity."""
    extensions: dict[str, Extension] = {}
    """By name."""
    models: dict[str, Model] = {}
    """By the names that the log has of them."""


class SessionDriver(SessionChannelHandle):
    """Driver of one session: executes its commands (run, resume, wake, …) in this process."""

    def __init__(
        self, agent: AgentSpec[Any], session_id: str, store: Store, redaction: RelatedRunsRedaction | None = None
    ) -> None:
        super().__init__(agent, session_id, store)
        self.run: Run | None = None
        """The run in progress."""
        self.run_id = ""
        """The id of the run in progress; that of a resumed run is known once the log was read."""
        self._requested_run_id = ""
        """The run id that the caller knows; a run that is resumed in its place keeps its own id."""
        self.resumed_run_ids: dict[str, str] = {}
        """Maps the run id that the caller knows to the id of the run that was resumed in its place."""
        self._state = State()
        self._head = 0
        self._fence = 0
        """The fence of the last lease."""
        self._entry_ids = EntryIdSource()
        """The ids of the entries that all runs of this driver store."""
        self._prefix_comparer = PrefixComparer()
        self.redaction = redaction or RelatedRunsRedaction()
        """The redaction of this session, shared with the sessions that work for it."""
        self._cancelled_run_ids: set[str] = set()
        """The runs that were cancelled before they began."""
        self._early_posts: list[Post] = []
        """The posts that have come while the run was being built."""
        self._poller: PostPoller | None = None
        """Looks for posts of others during a run."""
        self.budgets: Sequence[Budget] = ()
        """The budgets of whoever gave the task that is done in this session."""
        self.accepts_any_agent = False
        """True if it may continue runs that an agent of another name began."""

    # -- control from outside ------------------------------------------------------------------------------------------

    def find_run_of_input(self, input_id: str) -> str:
        """Return the id of the run in progress that answers the prompt with this `input_id`; empty if none does."""
        driver = self.find_active_driver() if input_id else None
        if driver is None or not isinstance(driver.command, RunPromptCommand) or driver.command.input_id != input_id:
            return ""
        return driver.run_id if driver.run is not None else ""

    def cancel_run(self, run_id: str, mode: CancelMode) -> bool:
        """Cancel one run; a run that has not begun yet ends as soon as it begins."""
        if self.run is not None and self.command is not None and run_id in {self._requested_run_id, self.run_id}:
            self.run.cancel(mode)
        else:
            self._cancelled_run_ids.add(run_id)
        return True

    def deliver_post(self, post: Post) -> None:
        """Pass a post (a stored message to the session) to the run in progress, if there is one."""
        if self.run is None:
            self._early_posts.append(post)
        elif post.kind != CANCEL_POST:
            self.run.mailbox.accept_post(post)
        elif post.text_field("run_id") == self.run.run_id:
            mode = cast("CancelMode", post.text_field("mode"))
            if _CANCEL_URGENCY.get(mode, 0) > _CANCEL_URGENCY.get(
                self.run.cancel_mode, 0
            ):  # else it was cancelled already
                self.run.cancel(mode)

    def _deliver_early_posts(self) -> None:
        """Pass the posts that have come meanwhile to the run that has just been built."""
        for post in self._early_posts:
            self.deliver_post(post)

    def poll_posts_soon(self) -> None:
        """Look for posts that were stored on another event loop, if there is a run."""
        if self._poller is not None:
            self._poller.poll_soon()

    def publish_between_runs(self, entries: Sequence[Entry]) -> None:
        """Publish entries that were stored between runs to the subscribers of the session on this event loop."""
        channel = self.find_channel()
        if channel is not None and channel.fanout.is_watched:
            for entry in entries:
                channel.fanout.publish(entry)

    # -- the four phases -----------------------------------------------------------------------------------------------

    async def perform_command(self, command: DriverCommand) -> Outcome[Any]:
        """Execute a command after all earlier commands of the session, from whichever object they were sent."""
        inside = _current_sessions.get()
        if self.place in inside:
            message = f"a tool of session {self.session_id!r} cannot run its own session: it would wait for itself"
            raise UsageError(message)
        raise_if_shutting_down(self.agent.engine, self.session_id)
        channel = self.attach_to_loop()
        if isinstance(command, RunPromptCommand) and get_calling_run() is not None:
            messages = tuple(map(add_labels_of_caller, command.messages))
            command = msgspec.structs.replace(command, messages=messages)
        channel.queued += 1
        try:
            if channel.queued > 1:
                async with hold_command_turn(channel, self.place, inside):
                    return await self._perform_now(command, channel)
            async with channel.lock:
                return await self._perform_now(command, channel)
        finally:
            channel.queued -= 1

    async def _perform_now(self, command: DriverCommand, channel: SessionChannel) -> Outcome[Any]:
        """Acquire the session's lease, prepare the run, perform it, and release the lease."""
        raise_if_shutting_down(self.agent.engine, self.session_id)  # again: the run before may have been left for it
        token = _current_sessions.set(_current_sessions.get() | {self.place})
        self.command = command
        channel.driver = self
        self.run_id = self._requested_run_id = command.run_id
        try:
            lease = await self._open_session(command)
            _active_drivers[self.place] = driving = (self, channel.loop)  # what is posted after the first look arrives
            try:
                async with self.agent.open_lifespans() if self.agent.has_lifespans else _NOTHING_TO_OPEN:
                    watchers = (*self.agent.all_watchers(), *command.overrides.get("watchers", ()))
                    release = channel.hold_watchers(watchers)
                    try:
                        prepared = await self._prepare_run(command, lease, channel)
                        if isinstance(prepared, Outcome):
                            return prepared
                        return await self._run_to_end(*prepared, channel)
                    finally:
                        if channel.fanout.is_watched or release is not remove_no_watchers:
                            await drain_and_remove_watchers(channel, release, self.list_background_tasks)
            except BaseException:
                self._state, self._head = State(), 0  # it may differ from the log: read that again
                raise
            finally:
                if _active_drivers.get(self.place) is driving:  # not a driver that has taken the session over
                    del _active_drivers[self.place]
                await self._close_session(lease)
        finally:
            _current_sessions.reset(token)
            if (caller := get_calling_run()) is not None:
                labels = self._state.labels if self.run is None else list_seen_labels(self.run)
                label_calling_run(caller, labels, f"agent:{self.agent.name or 'agent'}")
            self.run = self.command = channel.driver = None
            self._early_posts.clear()
            self._cancelled_run_ids.discard(command.run_id)

    def list_background_tasks(self) -> "list[asyncio.Task[Any]]":
        """Return the asyncio tasks in which agents work for this session in the background."""
        if not (self.agent.extensions or self.agent.handoffs):
            return []
        works = [extension.background for agent in self.agent.reachable for extension in agent.extensions]
        return [task for each in works if each is not None for task in each.list_tasks(self.place)]

    async def _close_session(self, lease: Lease) -> None:
        """Release the session's lease, even if the caller is cancelled meanwhile; the cancel is raised afterwards."""
        await finish_before_cancel(lambda: self.store.release(lease))

    async def _open_session(self, command: DriverCommand) -> Lease:
        """Acquire the lease of the session: the exclusive right to run it."""
        take_over = isinstance(command, (RunPromptCommand, ResumeCommand)) and command.take_over
        lease = await self.store.acquire(self.session_id, take_over=take_over)
        if self._head and lease.fence != self._fence + 1:  # another process had it, and may have redacted the log
            self._state, self._head = State(), 0
        self._fence = lease.fence
        return lease

    async def _prepare_run(
        self, command: DriverCommand, lease: Lease, channel: SessionChannel
    ) -> "Outcome[Any] | tuple[RunStartValues, Run, list[Post]]":
        """Read the log and build the run; return an outcome instead if there is nothing to run."""
        await self._read_new_entries()
        await add_agent_redactors(self.agent, self._state, self.redaction, command.overrides.get("tools", ()))
        if self.redaction.redactor is not None:
            check_id_for_secrets(self.session_id, self.redaction)
            if isinstance(command, RunPromptCommand) and command.input_id:
                command = msgspec.structs.replace(command, input_id=redact_input_id(command.input_id, self.redaction))
        state = self._state
        past = self._find_past_run(command)
        if past is not None and past.run_ended_event is not None:
            return await self._rebuild_outcome(command, past, past.run_ended_event)
        if isinstance(command, ResumeCommand) and command.is_optional and not is_resumable(state):
            return Outcome(status="done", reason=NOTHING_NEW, session_id=self.session_id)
        plan = self._plan_run(command, past)
        posts = list(await self.store.posts(self.session_id))
        mailbox, late = self._sort_posts(posts, plan)
        if isinstance(command, WakeCommand) or (plan.is_resumed and len(state.messages) == state.first_message_index):
            promote_follow_ups(mailbox)  # there is no message in this run yet
        self.run = run = self._build(plan, lease, mailbox, channel)
        self._deliver_early_posts()
        run.publish(SessionOpened(self.session_id, self._head, run_id=run.run_id))
        if plan.is_resumed and (closed := await self._close_hopeless_run(run, command)) is not None:
            return closed
        if isinstance(command, WakeCommand) and not await self._has_reason_to_wake(run):
            self._resume_background_work(run)
            return run.outcome("done", NOTHING_NEW)  # another process was quicker
        if isinstance(command, CompactCommand):
            return await self._compact_session(run)
        if past is not None and state.is_waiting and not self._may_go_on(run, posts):
            run.entries = await self._read_run_entries(run.run_id)
            return run.outcome("waiting", "question")
        if not (plan.is_answered or isinstance(command, CallToolCommand)):  # the model may call any tool
            check_deps(run.toolbox, run.deps)
        if plan.is_resumed and state.is_waiting:  # nothing is running in it: a cancel ends it at once
            self._cancelled_run_ids |= {post.text_field("run_id") for post in posts if post.kind == CANCEL_POST}
        return add_earlier_posts(command, plan, late, mailbox, state) if posts else plan, run, posts

    def _find_past_run(self, command: DriverCommand) -> RunWithInputId | None:
        """Return the run that has answered this prompt before, or that is to answer it. Raises if it may be lost."""
        if not isinstance(command, RunPromptCommand) or not command.input_id:
            return None
        past = self._state.runs_by_input_id.get(command.input_id)
        if past is not None:
            self._warn_about_other_prompt(command, past)
        elif self._state.may_have_lost_runs:
            raise build_lost_input_error(self.session_id, command.input_id)
        return past

    def _warn_about_other_prompt(self, command: RunPromptCommand, past: RunWithInputId) -> None:
        """Log a warning if the prompt is not the one that was sent before under the same `input_id`."""
        before = self._state.messages[past.first_message_index : past.first_message_index + 1]
        if not (before and command.messages) or self.agent.can_expand_prompts:  # then the log has the expanded prompt
            return
        sent, stored = self.redaction.redact_value(command.messages[-1].text), before[0].text
        if REDACTED not in stored and sent != stored:
            logger.warning(
                "input %r of session %r was sent before with another prompt: that one counts, and this one is not "
                "answered; give each prompt an input_id of its own",
                command.input_id,
                get_namespaced_session_id(self.store, self.session_id),
            )

    async def _close_hopeless_run(self, run: Run, command: DriverCommand) -> Outcome[Any] | None:
        """End a resumed run that makes no progress, or whose log is damaged, and return its outcome; else `None`."""
        if run.state.recoveries >= MAX_RECOVERIES and not _is_unpark(command):
            await run.emit(*build_repair_events(run.state, ENDING_CRASH_LOOP), sync=True)
            self._head = run.log.head
            return run.outcome("parked", "crash_loop")
        if run.state.has_lost_entries:
            await run.emit(*build_repair_events(run.state, ENDING_LOG_DAMAGED), sync=True)
            self._head = run.log.head
            return run.outcome("failed", ENDING_LOG_DAMAGED[1], build_lost_entries_error(self.session_id))
        return None

    def _may_go_on(self, run: Run, posts: Sequence[Post]) -> bool:
        """Return True if a run that waits could go on now: it has an answer, or could get one while it is resumed."""
        from perdure._core.permission.inherited import can_ask_in_process  # at first use: for runs that wait

        if run.options.answer_timeout_seconds > 0 or can_ask_in_process(run.gate):
            return True
        is_cancelled = bool(self._cancelled_run_ids & {self._requested_run_id, run.run_id})
        return is_cancelled or bool(find_resume_reasons(run.state, posts, get_steady_time(run.clock)))

    async def _rebuild_outcome(self, command: DriverCommand, past: RunWithInputId, ended: RunEnded) -> Outcome[Any]:
        """Return the outcome of the run that has answered this prompt before, from the log."""
        entries = await self._read_run_entries(past.run_id)
        outcome = rebuild_outcome(self.session_id, self._state, past, ended, entries)
        input_id = command.input_id if isinstance(command, RunPromptCommand) else ""
        return parse_stored_output(outcome, command.overrides.get("output"), input_id)

    async def _run_to_end(
        self, plan: RunStartValues, run: Run, posts: Sequence[Post], channel: SessionChannel
    ) -> Outcome[Any]:
        """Perform the run in a task that can be cancelled, and abandoned if it ignores that.

        Cancelling the caller cancels the run, which is ended and logged properly first.
        """
        raise_if_shutting_down(self.agent.engine, self.session_id)  # nothing of it is stored yet
        if logger.isEnabledFor(logging.INFO):
            logger.info("run %s of session %s begins", run.run_id, run.full_session_id, extra=run.log_fields)
        self._poller = poller = PostPoller(self.store, self.session_id, self.deliver_post, at_intervals=self.may_wait)
        is_cancelled = False
        try:
            task = start_task_eagerly(self._execute_run(plan, run, posts, channel))
            while not task.done() and not run.abandoned.done():
                try:
                    await asyncio.wait((task, run.abandoned), return_when=asyncio.FIRST_COMPLETED)
                except asyncio.CancelledError:
                    is_cancelled = True
                    (self.run or run).cancel("now")
            run = self.run or run
            if task.done():
                outcome = task.result()
            else:
                from perdure._runtime.resume.stuck import end_stuck_run  # at first use: few runs ignore their cancel

                task.add_done_callback(mark_exception_retrieved)  # it is abandoned, and may end later
                outcome, is_cancelled_again = await run_to_completion(end_stuck_run(run))
                is_cancelled = is_cancelled or is_cancelled_again
            self._head = run.log.head
        except Exception as error:
            if is_cancelled:  # the caller gets the cancel, with the error as its cause
                raise asyncio.CancelledError from error
            raise
        finally:
            self._poller = None
            await poller.close()
        if logger.isEnabledFor(logging.INFO):
            ending = (outcome.status, outcome.reason)
            logger.info("run %s of session %s: %s %s", run.run_id, run.full_session_id, *ending, extra=run.log_fields)
        if is_cancelled:
            raise asyncio.CancelledError
        return outcome

    async def _execute_run(
        self, plan: RunStartValues, run: Run, posts: Sequence[Post], channel: SessionChannel
    ) -> Outcome[Any]:
        """Store the opening events of the run, then perform the agent loop."""
        if plan.is_resumed:
            stored = await self.store.read(self.session_id)
            run.entries = select_run_entries(stored, plan.run_id)
            count_unreported_entries(run, stored)
        for event in plan.opening:
            if not event.durable:
                run.publish(run.stamp_event(event))
        await run.emit(*[each for each in plan.opening if each.durable], sync=True, entry_ids=plan.taken)
        count_past_usage(run)
        if plan.is_resumed:  # they need not wait for the calls that this run has to settle first
            self._resume_background_work(run)
        faults.fault_point("run.opened")
        if self._cancelled_run_ids & {self._requested_run_id, run.run_id}:
            run.cancel("now")
        for post in posts:
            if post.kind == CANCEL_POST:
                self.deliver_post(post)
        engine = self._choose_engine(plan)
        while True:
            try:
                return await execute(run, engine)
            except SimulatedCrash:
                run = await self._rebuild_run(plan, run, channel)

    def _choose_engine(self, plan: RunStartValues) -> Engine:
        """Return the engine of a run, wrapped with the agent's middleware and with the tool for structured output."""
        engine = _end_with_given_answer if plan.is_answered else self._get_engine(plan)
        if faults.always_resume and engine is react:
            engine = _react_forgetting_appends
        if (layers := self.agent.middleware_layers) and not isinstance(self.command, CallToolCommand):
            from perdure._runtime.agent.middleware import wrap_engine  # at first use: most agents have none

            engine = wrap_engine(engine, layers)
        if (output := plan.overrides.get("output")) is not None:
            engine = end_run_on_answer(engine, output)
        return engine

    def _get_engine(self, plan: RunStartValues) -> Engine:
        """Return the engine of the agent, or that of this run, which stops with the process too."""
        engine = open_engine(plan.overrides.get("engine", self.agent.engine))
        process_end = find_shutdown_signal(self.agent.engine)
        if process_end is None or engine is self.agent.engine or isinstance(self.command, CallToolCommand):
            return engine
        return process_end.wrap_engine(engine)

    # -- how a run begins ----------------------------------------------------------------------------------------------

    def _plan_run(self, command: DriverCommand, past: RunWithInputId | None) -> RunStartValues:
        """Return the plan (id, overrides, first events) of the run that a command requires."""
        match command:
            case ResumeCommand():
                return self._plan_resumed_run(command.overrides, unpark=command.unpark)
            case RunPromptCommand() if past is not None:  # it was run before, and interrupted
                return self._plan_resumed_run(command.overrides)
            case RunPromptCommand():
                return self._plan_prompt(command)
            case CallToolCommand():
                opening = self._build_opening_events(
                    RunStarted(
                        self.agent.name, {CALL_OPTION: command.tool}, engine="direct_call", run_id=command.run_id
                    )
                )
                return RunStartValues(command.run_id, command.overrides, opening, may_wait=False)
            case WakeCommand() | CompactCommand():
                if GIVEN_BY_SETTING in self._state.settings:
                    self._check_agent_of_run()
                started = self._build_run_started(command.overrides, command.run_id)
                return RunStartValues(command.run_id, command.overrides, self._build_opening_events(started))

    def _plan_prompt(self, command: RunPromptCommand) -> RunStartValues:
        """Return the plan of a new run that answers a prompt."""
        run_id = command.run_id
        started = self._build_run_started(command.overrides, run_id, command.input_id)
        messages = command.messages if command.answer is None else (*command.messages, command.answer)
        events = [msgspec.structs.replace(each, run_id=run_id) for each in command.events]
        opening = self._build_opening_events(started)
        if command.history:
            from .imported import build_transcript_events  # at first use: most prompts are one message

            opening = (*opening[:-1], *build_transcript_events(command.history, self._state), started)
        return RunStartValues(
            run_id,
            command.overrides,
            (*opening, *events, *[MessageAdded(each, run_id=run_id) for each in messages]),
            skills=tuple([each.name for each in command.events if isinstance(each, SkillLoaded)]),
            is_answered=command.answer is not None,
        )

    def _build_run_started(self, overrides: RunOverrides, run_id: str, input_id: str = "") -> RunStarted:
        """Return the event that starts a run with these overrides."""
        engine = open_engine(overrides.get("engine", self.agent.engine))
        name = "react" if engine is react else get_engine_name(engine)
        return RunStarted(self.agent.name, encode_overrides(overrides), input_id, name, run_id=run_id)

    def _plan_resumed_run(self, options: RunOverrides, *, unpark: bool = False) -> RunStartValues:
        """Return the plan of the interrupted run, with the overrides it was begun with and those given now."""
        before = self._find_interrupted_run(unpark=unpark)
        self.resumed_run_ids = {self._requested_run_id: before.run_id}
        self.run_id = before.run_id
        combined = merge_overrides(restore_overrides(before.options, options), options)
        if "engine" in combined:
            open_engine(combined["engine"])  # an unknown name is refused before anything is stored
        return RunStartValues(before.run_id, combined, (RunResumed(run_id=before.run_id),), is_resumed=True)

    def _build_opening_events(self, started: RunStarted) -> tuple[Event, ...]:
        """Return the event that starts a run, preceded by events that repair an unfinished earlier run."""
        if layers := self.agent.middleware_layers:
            started = msgspec.structs.replace(started, middleware=tuple([each.name for each in layers]))
        return *build_repair_events(
            self._state,
            ENDING_UNANSWERED if self._state.is_waiting and self._state.open_questions else ENDING_PROCESS_DIED,
        ), started

    def _find_interrupted_run(self, *, unpark: bool) -> RunStarted:
        """Return the `RunStarted` event of the interrupted run; with `unpark`, also of a parked one.

        Raises `SessionNotFound` or `UsageError` if there is nothing to resume.
        """
        before = self._state.run
        if before is None:
            message = f"there is no session {self.session_id!r} to resume: use run() to begin it"
            raise SessionNotFound(message)
        if GIVEN_BY_SETTING in self._state.settings:
            self._check_agent_of_run()
        if not self._state.is_interrupted and not (unpark and self._state.is_parked):
            status = self._state.run_ended_event.status if self._state.run_ended_event else ""
            message = f"session {self.session_id!r} has nothing to resume: its last run ended with status {status!r}"
            advice = "; resume(unpark=True) takes it up again" if self._state.is_parked else ""
            raise UsageError(message + advice)
        if CALL_OPTION in before.options:
            message = (
                f"session {self.session_id!r} has nothing to resume: it was calling a tool; use run() to settle it"
            )
            raise UsageError(message)
        self._check_agent_of_run()
        return before

    def _check_agent_of_run(self) -> None:
        """Raise `UsageError` if an agent of another name began the last run: this one may lack its tools."""
        if not self.accepts_any_agent:
            check_agent_of_run(self._state, self.agent.name, self.session_id)

    # -- building the run ----------------------------------------------------------------------------------------------

    async def _read_new_entries(self) -> None:
        """Update the session's state with the entries that were stored since the log was last read."""
        events, head = await read_events(self.store, self.session_id, after=self._head)
        if head != self._head:  # somebody else has written: each writer has one stretch of the log under its ids
            self._entry_ids = EntryIdSource()
        self._head = head
        self._state.apply_all(events)

    async def _read_run_entries(self, run_id: str) -> list[Entry]:
        """Return the stored entries of one run and its private runs, without those of its subagents."""
        return select_run_entries(await self.store.read(self.session_id), run_id)

    def _sort_posts(self, posts: Sequence[Post], plan: RunStartValues) -> tuple[Mailbox, list[Post]]:
        """Return this run's mailbox with the posts for it, and separately those too late for an earlier run."""
        mailbox = Mailbox(self.agent.steering_mode, self.agent.follow_up_mode)
        if not posts:
            return mailbox, []
        return mailbox, fill_mailbox(mailbox, posts, self._state, plan.run_id, is_resumed=plan.is_resumed)

    def _build(self, plan: RunStartValues, lease: Lease, mailbox: Mailbox, channel: SessionChannel) -> Run:
        """Build the run from the agent, the session's state and the plan."""
        place = RunPlace(
            session_id=self.session_id,
            run_id=plan.run_id,
            log=Log(self.store, lease, self._head, self.agent.clock, self._entry_ids),
            fanout=channel.fanout,
            mailbox=mailbox,
            prefix_comparer=self._prefix_comparer,
            can_wait=self.may_wait and plan.may_wait,
            redaction=self.redaction,
            budgets=self.budgets,
        )
        return build_run(self.agent, place, self._state, plan.overrides, plan.skills)

    async def _compact_session(self, run: Run) -> Outcome[Any]:
        """Compact the conversation between two runs; the events belong to no run."""
        if self._state.is_interrupted:
            message = f"session {self.session_id!r} has a run that is not over: resume() it first, or cancel() it"
            raise UsageError(message)
        run.run_id = ""
        run.output = await run.compact("manual")
        self._head = run.log.head
        return run.outcome("done")

    async def _has_reason_to_wake(self, run: Run) -> bool:
        """Return True if there are messages for the model; tasks that ended without a report are reported first."""
        if is_resumable(self._state):
            return False
        run.engine = run.engine or self.agent.engine  # as for the tasks of this session, below
        for extension in get_active_agent(self.agent, run.state).extensions if run.state.kept_values else ():
            if extension.background is not None:
                await extension.background.report_ended_tasks(run)
        return run.mailbox.has_messages_due

    def _resume_background_work(self, run: Run) -> None:
        """Resume the tasks of background agents that a crash interrupted."""
        if run.state.inbox:
            run.engine = run.engine or self.agent.engine  # the tasks stop with the process if its runs do
            for extension in get_active_agent(self.agent, run.state).extensions:
                if extension.background is not None:
                    extension.background.resume_tasks(run)

    async def _rebuild_run(self, plan: RunStartValues, run: Run, channel: SessionChannel) -> Run:
        """Rebuild a run from the log after its loop was discarded (`PERDURE_ALWAYS_RESUME`, for tests)."""
        ids, self._state, self._head = self._entry_ids, State(), 0
        await self._read_new_entries()
        self._entry_ids = ids
        again = msgspec.structs.replace(plan, is_resumed=True)
        mailbox, _ = self._sort_posts(await self.store.posts(self.session_id), again)
        self.run = rebuilt = self._build(again, run.log.lease, mailbox, channel)
        rebuilt.abandoned, rebuilt.entries = run.abandoned, run.entries
        count_unreported_entries(rebuilt, await self.store.read(self.session_id))
        if run.mailbox.is_closing:  # the rebuilt run must not wait for answers either
            mailbox.stop_waiting()
        rebuilt.cancel_mode = run.cancel_mode
        rebuilt.interrupt_reason = run.interrupt_reason or ("cancelled" if run.cancel_mode == "after_tools" else "")
        return rebuilt


async def _react_forgetting_appends(run: Run) -> Outcome[Any]:
    """Perform the `react` engine, restarting its loop from the log after each append (for tests)."""
    run.simulates_crashes = True
    try:
        return await react(run)
    finally:
        run.simulates_crashes = False


async def _end_with_given_answer(run: Run) -> Outcome[Any]:
    """Engine that ends the run at once as done, for a `/name` command that has given the answer itself."""
    return run.outcome("done")


def _is_unpark(command: DriverCommand) -> bool:
    """Return True if the command may continue a parked run."""
    return isinstance(command, ResumeCommand) and command.unpark


def is_running_here(place: SessionPlace) -> bool:
    """Return True if a run of the session is in progress in this process."""
    return place in _active_drivers


def leave_run_for_others(driver: SessionDriver, reason: str) -> bool:
    """Stop a session's run in this process, so that another process can resume it.

    Return False if it has no run that can be left to others.

    Its tool calls in progress are cancelled.
    """
    found = _active_drivers.get(driver.place)
    if found is None or found[0] is not driver or (run := driver.run) is None or not run.can_wait:
        return False
    run.leave(reason)
    run.interrupt(reason)
    return True


def is_inside_run() -> bool:
    """Return True if the calling code is executed inside an agent's run, for example in a tool."""
    return bool(_current_sessions.get())


def detach_current_task() -> None:
    """Detach the current asyncio task from the run that started it, so that it may outlive the run."""
    _current_sessions.set(frozenset())
    enter_run(None)


def pass_post_to_run(place: SessionPlace, post: Post) -> None:
    """Pass a post (a stored message to a session) directly to the session's run, if it is in this process."""
    found = _active_drivers.get(place)  # once: the run may end on another thread
    if found is None:
        return
    driver, loop = found
    if loop is asyncio.get_running_loop():
        driver.deliver_post(post)
    else:  # this thread may be late: the run that took the post may be over, and the next one has begun
        loop.call_soon_threadsafe(driver.poll_posts_soon)
