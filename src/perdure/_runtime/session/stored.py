"""A session in its store: the operations that do not run the agent, such as read, search, fork and delete.

Further operations watch and redact its log.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, cast

from perdure._core.log.fold import State, fold_entries, fold_events
from perdure._core.log.redaction import RelatedRunsRedaction, erase_event_content, find_summaries_of
from perdure._core.log.reserved_ids import check_not_reserved, is_listed
from perdure._core.log.status import GIVEN_BY_SETTING
from perdure._core.log.store import (
    ForkListingStore,
    Hit,
    Lease,
    Log,
    Post,
    SearchableStore,
    SearchOptions,
    SessionInfo,
    Store,
    cancel_and_await_tasks,
    finish_before_cancel,
    get_namespaced_session_id,
    read_events,
)
from perdure._core.model.budget import Budget
from perdure._core.run.spec import ShutdownSignal, find_shutdown_signal, is_shutting_down
from perdure._core.tools.context import D
from perdure._core.values import checks
from perdure._core.values.clock import get_steady_time, new_id
from perdure._core.values.error import SessionBusy, SessionNotFound, UnsupportedByStore, UsageError
from perdure._core.values.event import Entry, SessionConfigured
from perdure._core.values.event_class import Event, QuestionAsked, SlotOpened
from perdure._core.values.jsonable import to_jsonable
from perdure._core.values.message import Message
from perdure._core.watch import Subscription, Watcher
from perdure._runtime.agent.redaction import add_agent_redactors, is_redaction_complete
from perdure._runtime.agent.spec import AgentSpec
from perdure._runtime.subagents.jobs import list_background_jobs

from .channel import pause_commands
from .driver import SessionDriver, pass_post_to_run, session_additions

if TYPE_CHECKING:
    from perdure._core.people.inbox import HostEvent
    from perdure._runtime.agent.agent import Agent
    from perdure._runtime.agent.extension import Extension
    from perdure._runtime.agent.overrides import Overrides
    from perdure._tools.tasks.task_list import StatedTask, Task, TaskStatus

    from .report import MessageCounts, SessionUsage, StampedMessage


WATCH_POLL_SECONDS = 1.0
"""The interval at which `watch` looks for entries of other processes."""
LAST_POLL_SECONDS = 0.1
"""The interval at which `watch` looks whether the run is over, once the process was asked to end."""
_PAGE_SIZE = 500


class StoredSession(Generic[D]):
    """A session in a store, to read, search, fork or delete it: all operations that do not run the agent."""

    def __init__(
        self,
        agent: AgentSpec[D],
        session_id: str,
        store: Store,
        role: str = "",
        redaction: RelatedRunsRedaction | None = None,
        *,
        may_wait: bool = True,
        budgets: Sequence[Budget] = (),
    ) -> None:
        session_id = check_not_reserved(session_id, store)
        if session_additions:  # few sessions are given anything but their agent
            from .additions import apply_additions

            agent = apply_additions(agent, store, session_id)
        self.agent = cast("Agent[D]", agent)  # for callers: a session is opened from an agent
        self.session_id = session_id
        self.store = store
        self.role = role
        """The role of its runs, unless a run asks for another."""
        self._driver = SessionDriver(agent, session_id, store, redaction)
        self._driver.may_wait, self._driver.budgets = may_wait, budgets

    # -- reading -------------------------------------------------------------------------------------------------------

    async def messages(self) -> Sequence[Message]:
        """Return the messages of the conversation, as they are stored."""
        return (await self._read_stored_state()).messages

    async def kept(self, name: str, default: Any = None) -> Any:
        """Return the value that a tool or `keep` has stored in the log under that name, such as tasks or notes."""
        checks.require_text("session.kept", "name", name, non_empty=True)
        values = await self.kept_values()
        return (
            values[name]
            if name in values
            else values.get((await self._complete_redaction()).redact_value(name), default)
        )

    async def kept_values(self) -> dict[str, Any]:
        """Return all values that tools and `keep` have stored in the log, by name."""
        from perdure._core.people.mailbox import list_posted_events
        from perdure._core.values.event import ValueKept

        stored = (await self.read_state()).kept_values
        posted = list_posted_events(await self.store.posts(self.session_id))
        return {**stored, **{each.name: each.value for each in posted if isinstance(each, ValueKept)}}

    async def tasks(self) -> "list[Task]":
        """Return the task list of the agent, if it has the tools for one (`task_tools`)."""
        from perdure._tools.tasks.task_list import parse_tasks

        return parse_tasks(await self.kept("tasks"))

    async def watch(self, *, after: int = 0) -> AsyncGenerator[Entry]:
        """Yield every entry of the log after number `after`, then every event from now on.

        Events of all objects for this session on this event loop are seen as they happen. This works while another
        process drives the session, too: entries that it stores are seen within a second, its deltas are not. A session
        that does not exist yet is watched from its first entry on. Raises `UsageError` if the log does not reach
        `after`: the session was deleted, or restored from a backup.

        With an agent that a `Shutdown` has wrapped, it ends when the process is asked to end and the run that this
        process drives has stored how far it came.
        """
        subscription, is_checked = self.subscribe(), False
        process_end = find_shutdown_signal(self.agent.engine)
        coming: asyncio.Future[Entry | None] | None = None
        live: Entry | None = None
        try:
            while True:
                is_last = is_shutting_down(process_end) and self._driver.find_active_driver() is None
                if live is None or live.seq > after + 1:  # other processes may have stored entries
                    stored = await self.store.read(self.session_id, after=after)
                    if after and not (stored or is_checked):
                        await self._check_log_reaches(after)
                    is_checked = True
                    for entry in stored:
                        after = entry.seq
                        yield entry
                elif live.seq in {0, after + 1}:
                    after = max(after, live.seq)
                    yield live
                if len(subscription):
                    live = subscription.get_nowait()
                    continue
                if is_last:
                    return
                coming = coming or asyncio.ensure_future(_next_entry(subscription))
                await _wait_for_entry_or_shutdown(coming, process_end)
                arrived = coming.done()
                live = coming.result() if arrived else None
                if arrived and live is None:
                    return  # the session was closed
                coming = None if arrived else coming
        finally:
            subscription.close()
            if coming is not None:
                coming.cancel()

    async def _check_log_reaches(self, after: int) -> None:
        """Raise `UsageError` if the log ends before entry number `after`."""
        if not await self.store.read(self.session_id, after=after - 1):
            entries = await self.store.read(self.session_id)
            has = f"entries up to {entries[-1].seq}" if entries else "no entries"
            raise UsageError(
                f"session.watch(after={after}): session {self.session_id!r} has {has}, because it was deleted, or "
                "restored from a backup: begin again with watch(after=0)"
            )

    def subscribe(self, *, backpressure: bool = False) -> Subscription:
        """Subscribe to every event of this session from now on, and close the subscription when done.

        Runs that other `Session` objects of the same id begin on this event loop are seen as well, with their deltas.
        """
        return self._driver.subscribe(backpressure=backpressure)

    def find_resumed_run(self, run_id: str) -> str:
        """Return the id of the run that was resumed instead of starting run `run_id`; empty if there is none."""
        return self._driver.resumed_run_ids.get(run_id, "")

    async def history(self) -> "list[StampedMessage]":
        """Return the messages of the conversation with their times, and the numbers of their entries in the log."""
        from .report import list_stamped_messages  # at first use: most programs read `messages`

        return list_stamped_messages(await self.store.read(self.session_id))

    async def find_message(self, found: "Hit | int") -> "StampedMessage | None":
        """Return the message of a search hit, or of an entry number, with its index in `messages()` and its time.

        Return `None` if the entry is part of no message of this conversation, such as one of a subagent. Raises
        `UsageError` for a hit in another session.
        """
        from .report import find_stamped_message

        if isinstance(found, Hit) and found.session_id != self.session_id:
            raise UsageError(f"this hit is in session {found.session_id!r}, not in {self.session_id!r}: open that one")
        seq = found.seq if isinstance(found, Hit) else found
        checks.require_int("session.find_message", "found", seq)
        return find_stamped_message(await self.store.read(self.session_id), seq)

    async def count_messages(self) -> "MessageCounts":
        """Return the numbers of messages of the conversation by role. Reads the log, unlike `info`."""
        from .report import count_messages_by_role

        return count_messages_by_role(await self.messages())

    async def usage(self, *, with_unfinished: bool = True) -> "SessionUsage":
        """Return the tokens, turns and cost of all runs of the session so far.

        A run that is in progress, waits for an answer, or was cut off counts too, by the prices in the log. Without it
        (`with_unfinished=False`), this is what a `Budget` for that run has to leave out: when the run is resumed, the
        budget counts what it has used before.
        """
        from .report import build_session_usage, build_usage_of_ended_runs

        checks.require_bool("session.usage", "with_unfinished", with_unfinished)
        state = await self.read_state()
        if state.is_interrupted and not with_unfinished:
            return build_usage_of_ended_runs(state)
        return build_session_usage(state, self._driver.find_active_run())

    async def instructions(self, **overrides: "Unpack[Overrides[D]]") -> str:
        """Return the system prompt that the next run will send; during a run, that of the run.

        It has the texts of extensions, project files, the list of skills, the role and the tools. `overrides` are as
        for `run`.
        """
        from perdure._runtime.agent.build import build_instructions  # loaded already

        if (run := self._driver.find_active_run()) is not None and not overrides:
            return run.instructions
        given: Any = {"role": self.role, **overrides} if self.role else overrides
        return build_instructions(self.agent, await self.read_state(), given)

    def find_run_of_input(self, input_id: str) -> str:
        """Return the id of the run in progress that answers the prompt with this `input_id`; empty if none does."""
        return self._driver.find_run_of_input(input_id)

    async def read_run(self, run_id: str) -> Sequence[Entry]:
        """Return the stored entries of one run, those of its subagents included."""
        checks.require_text("session.read_run", "run_id", run_id, non_empty=True)
        entries = await self.store.read(self.session_id)
        return [each for each in entries if each.event.run_id.partition("/")[0] == run_id]

    async def info(self) -> SessionInfo | None:
        """Return the session's entry in the list of sessions; None if nothing is stored in it yet."""
        return await self.store.info(self.session_id)

    async def search(self, query: str, **narrowed: Unpack[SearchOptions]) -> list[Hit]:
        """Search the messages of this session; takes the options of `SearchableStore.search`, without `session_id`."""
        here: SearchOptions = {**narrowed, "session_id": self.session_id}
        return await require_searchable_store(self.store).search(query, **here)

    # -- what a host program adds --------------------------------------------------------------------------------------

    async def import_messages(self, messages: Sequence[Message]) -> int:
        """Add a conversation that took place elsewhere, with its tool calls and results; return the number of messages.

        They are stored in one piece, and the next run continues from there. Each tool call needs exactly one result.
        Raises `ConfigError`, and stores nothing, if one is missing, and `UsageError` while a run is not over.
        """
        from .imported import build_transcript_events, check_transcript  # at first use: for a quick start

        check_transcript(messages)
        async with self._lease_and_read(begin=True) as (lease, entries):
            state = fold_entries(entries)
            if state.is_interrupted:
                raise UsageError(
                    f"session {self.session_id!r} has a run that is not over: resume() it first, or cancel() it"
                )
            before = len(state.messages)
            events = build_transcript_events(messages, state)
            await self._append_to_log(lease, entries, events)
        for event in events:
            state.apply(event)
        return len(state.messages) - before

    async def keep(self, name: str, value: Any) -> None:
        """Store a value in the log under a name, replacing an older one: metadata of your own, or notes for tools.

        Tools read it with `ToolContext.kept`. While the session is being driven, it is passed to its run.
        """
        from perdure._core.tools.context import check_value_name
        from perdure._core.values.event import ValueKept

        check_value_name("session.keep", name)
        await self._append_or_post(ValueKept(name, to_jsonable(value)), f"keep-{new_id()}")

    async def add_to_inbox(
        self, tag: str, request: str, *, blocking: bool = False, wake: bool = False, item_id: str = ""
    ) -> str:
        """Add a result from outside that the agent is to wait for; return the id that `resolve` has to name.

        With `blocking`, the model is reminded that it cannot go on without it. With `wake`, the result starts a run
        when none is active. `item_id` is your id for it: an item that is there already is not added again.
        """
        from perdure._core.people.inbox import list_inbox_items
        from perdure._core.values.event import InboxAdded

        checks.require_text("session.add_to_inbox", "tag", tag, non_empty=True)
        checks.require_text("session.add_to_inbox", "request", request)
        checks.require_text("session.add_to_inbox", "item_id", item_id)
        item_id = item_id or new_id()
        entries, posts = await self.store.read(self.session_id), await self.store.posts(self.session_id)
        if item_id not in {each.item_id for each in list_inbox_items(entries, posts)}:
            await self._append_or_post(InboxAdded(item_id, tag, request, blocking, wake), f"add-{item_id}")
        return item_id

    async def set_tasks(self, tasks: "Sequence[Task | StatedTask | str]") -> "list[Task]":
        """Replace the task list of the agent, and return it with the ids of the tasks. `[]` empties it.

        A task whose content is on the list already keeps its id. The agent sees the list if it has `task_tools`.
        """
        from perdure._tools.tasks.task_list import TASKS, convert_host_tasks

        named = convert_host_tasks(tasks, await self.tasks())
        await self.keep(TASKS, named)
        return named

    async def update_task(
        self,
        task_id: str,
        *,
        content: str | None = None,
        active_form: str | None = None,
        status: "TaskStatus | None" = None,
    ) -> "Task":
        """Change one task of the agent's list, and return it. Raises `UsageError` if there is no such task."""
        from perdure._tools.tasks.task_list import TASKS, apply_task_changes

        tasks, changed = apply_task_changes(
            await self.tasks(), task_id, {"content": content, "active_form": active_form, "status": status}
        )
        await self.keep(TASKS, tasks)
        return changed

    def extend(self, extension: "Extension") -> None:
        """Add an extension to this session: tools, subagents, `/name` commands, skills, watchers, rules and more.

        It applies from the next run on, to this object and to each `Session` object of this session that is made
        afterwards in this process, until it is removed or the process ends. Another process has to add it again.
        """
        from .additions import add_extension

        add_extension(self, extension)

    def remove_extension(self, name: str) -> bool:
        """Remove an extension that `extend` has added; return False if there is none of that name."""
        from .additions import remove_extension

        checks.require_text("session.remove_extension", "name", name, non_empty=True)
        return remove_extension(self, name)

    def add_watcher(self, watcher: Watcher) -> Callable[[], None]:
        """Call a function with every event of this session in this process, also of a run in progress.

        Return a function that removes it. It is also removed when the session is closed.
        """
        checks.require_callable("session.add_watcher", "watcher", watcher)
        return self._driver.add_watcher(watcher)

    def use_agent(self, agent: AgentSpec[D]) -> None:
        """Use another version of the agent from the next run on, with other extensions or models."""
        self.agent = cast("Agent[D]", agent)
        self._driver.agent = agent

    # -- changing what is stored ---------------------------------------------------------------------------------------

    async def fork(self, session_id: str | None = None, *, at: int | None = None, keep_grants: bool = False) -> Self:
        """Create a session that begins with the first `at` entries of this one; without `at`, with all of them.

        What was allowed for this session is asked about again in the fork, unless `keep_grants` is true.
        """
        name = new_id() if session_id is None else session_id
        checks.require_bool("session.fork", "keep_grants", keep_grants)
        checks.require_text("session.fork", "session_id", name)
        check_not_reserved(name, self.store)
        checks.require_one_line("session.fork", "session_id", name)
        full_id = get_namespaced_session_id(self.store, self.session_id)
        changes: dict[str, Any] = {}
        if keep_grants:
            from .seals import list_trusted_session_keys, seal_kept_grants  # at first use: few forks keep them

            kept = list_trusted_session_keys(full_id, await self.read_state(), self.store)
            new_full_id = get_namespaced_session_id(self.store, name)
            changes |= seal_kept_grants(new_full_id, kept, self.store)
        await self.store.fork(self.session_id, name, at=at)
        fork = type(self)(self.agent, name, self.store, self.role, redaction=self._driver.redaction)
        if "/" in full_id and GIVEN_BY_SETTING in (await fork.read_state()).settings:
            changes[GIVEN_BY_SETTING] = ""  # a fork of a background agent's session has no task
        if changes:
            await fork._append_events(SessionConfigured(changes))  # noqa: SLF001 - the same class
        return fork

    async def lineage(self) -> list[SessionInfo]:
        """Return the sessions that this one was forked from, the oldest first, and this one last."""
        line: list[SessionInfo] = []
        info = await self.store.info(self.session_id)
        while info is not None:
            line.append(info)
            info = await self.store.info(info.parent) if info.parent else None
        return line[::-1]

    async def forks(self) -> list[SessionInfo]:
        """Return the sessions that were forked from this one."""
        if isinstance(self.store, ForkListingStore):
            return await self.store.forks(self.session_id)
        return [each async for each in iterate_sessions(self.store) if each.parent == self.session_id]

    async def rename(self, title: str) -> None:
        """Set the title of the session, which lists show instead of its first message."""
        checks.require_text("session.rename", "title", title, non_empty=True)
        await self._append_events(SessionConfigured({"title": title}))

    async def redact(self, seq: int) -> None:
        """Erase the content of one entry from the log, the search index and every fork; no byte of it remains.

        The entry stays, so the conversation stays valid, and so do its ids, names and statuses, which the log needs:
        your `input_id`, `post_id` or `item_id`, and the names of agents, tools and kept values. Put nothing there that
        may have to be erased; only `delete` removes it. Summaries that were made of it are erased as a whole: the
        model is informed that there was one. Raises `SessionBusy` while the session is being driven.
        """
        async with self._lease_and_read() as (lease, entries):
            found = next((each for each in entries if each.seq == seq), None)
            if found is None:
                raise UsageError(f"session {self.session_id!r} has no entry {seq!r}: it has {len(entries)}")
            for each in (
                *find_summaries_of(entries, found),
                found,
            ):  # itself last: if interrupted, it can be redacted again
                await self.store.redact(lease, Entry(each.seq, each.at, erase_event_content(each.event), each.id))

    async def delete(self) -> None:
        """Delete the session; no byte of it remains, except entries that forks share with it.

        Those of its background agents, `ID/…`, are sessions of their own: their tasks and answers stay.
        """
        await self.store.delete(self.session_id)
        session_additions.pop(self._driver.place, None)

    async def aclose(self) -> None:
        """Wait until watchers have handled their events. The stored session is not changed."""
        await self._driver.aclose()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self.agent.clock.now()

    def _steady_now(self) -> float:
        """Return the time of day by which questions expire: a jump of the machine's clock has to last."""
        return get_steady_time(self.agent.clock)

    async def read_state(self) -> State:
        """Return the current state of the session: that of the run in progress, else folded from the stored log."""
        run = self._driver.find_active_run()
        return run.state if run is not None else await self._read_stored_state()

    async def _read_stored_state(self) -> State:
        """Return the state of the session from its stored log."""
        events, _ = await read_events(self.store, self.session_id)
        return fold_events(events)

    def _background_sessions(self, state: State, *, done: bool = False) -> dict[str, Self]:
        """Return the sessions of background agents that work for this one, by handle; with `done`, also finished."""
        if not (state.inbox or done):
            return {}
        jobs = [job for job in list_background_jobs(state, self.store) if done or job.item_id in state.inbox]
        return {
            job.handle: type(self)(self.agent, job.session_id, self.store, redaction=self._driver.redaction)
            for job in jobs
            if job.session_id.startswith(f"{self.session_id}/")  # else it belongs to the session this was forked from
        }

    async def _has_asked_anywhere(self, ask_id: str) -> bool:
        """Return True if the question was ever asked in this session, or in one of a background agent."""
        if await self._has_had_slot(ask_id):
            return True
        below = self._background_sessions(await self.read_state(), done=True).values()
        return any([await each._has_asked_anywhere(ask_id) for each in below])  # noqa: SLF001 - the same class

    async def _has_had_slot(self, slot_id: str) -> bool:
        """Return True if a question or a display slot of that id was ever opened in this session."""
        from perdure._core.people.mailbox import list_posted_events

        events, _ = await read_events(self.store, self.session_id)
        return any(
            (isinstance(each, QuestionAsked) and each.ask_id == slot_id)
            or (isinstance(each, SlotOpened) and each.slot_id == slot_id)
            for each in (*events, *list_posted_events(await self.store.posts(self.session_id)))
        )

    async def _check_id_of_new_session(self) -> None:
        """Raise `ConfigError` if the session does not exist yet, and its id would garble lists of sessions and logs."""
        if checks.has_control_characters(self.session_id) and await self.store.info(self.session_id) is None:
            checks.require_one_line("agent.session", "session_id", self.session_id)

    async def _append_events(self, *events: Event, begin: bool = False) -> None:
        """Append events to the log between runs. With `begin`, a session that does not exist is created."""
        async with self._lease_and_read(begin=begin) as (lease, entries):
            await self._append_to_log(lease, entries, events)

    async def _append_to_log(self, lease: Lease, entries: Sequence[Entry], events: Sequence[Event]) -> None:
        """Append events to the log between runs, with its lease; `entries` are those that it has."""
        _, head = await read_events(self.store, self.session_id, after=entries[-1].seq if entries else 0)
        log = Log(self.store, lease, head, self.agent.clock)
        redaction = await self._complete_redaction()
        redacted_events = [redaction.redact_event(each) for each in events]
        if await log.append(redacted_events, sync=True, on_stored=self._driver.publish_between_runs):
            raise asyncio.CancelledError

    async def _append_or_post(self, event: "HostEvent", post_id: str) -> None:
        """Append an event to the log, or post it to the process that runs the session, which stores it."""
        redacted = (await self._complete_redaction()).redact_event(event)
        try:
            await self._append_events(redacted, begin=True)
        except SessionBusy:
            from perdure._core.people.mailbox import build_host_event_post

            await self._store_post(build_host_event_post(redacted, post_id, self._now()))

    @asynccontextmanager
    async def hold_log(
        self,
    ) -> "AsyncGenerator[tuple[list[Entry], Callable[[Sequence[tuple[str, Any]]], Awaitable[None]]]]":
        """Let nobody else drive or change the session during a block, and store values meanwhile.

        Gives the entries of the log, and a function that stores several values in it under their names, all or none.
        Raises `SessionBusy` while the session is being driven.
        """
        from perdure._core.values.event import ValueKept

        async with self._lease_and_read() as (lease, entries):
            log = Log(self.store, lease, entries[-1].seq if entries else 0, self.agent.clock)
            redaction = await self._complete_redaction()

            async def keep(values: Sequence[tuple[str, Any]]) -> None:
                events = [redaction.redact_event(ValueKept(name, to_jsonable(value))) for name, value in values]
                if await log.append(events, sync=True, on_stored=self._driver.publish_between_runs):
                    raise asyncio.CancelledError

            yield entries, keep

    async def _complete_redaction(self) -> RelatedRunsRedaction:
        """Return the redaction of the session with the secrets of its agents, also before a run in this process."""
        redaction = self._driver.redaction
        if not is_redaction_complete(self.agent, redaction):
            await add_agent_redactors(self.agent, await self.read_state(), redaction)
        return redaction

    async def _store_post(self, post: Post) -> bool:
        """Store a post (a message to this session), and pass it at once to a run in this process."""
        if not await self.store.post(self.session_id, post):
            return False
        pass_post_to_run(self._driver.place, post)
        return True

    @asynccontextmanager
    async def _lease_and_read(self, *, begin: bool = False) -> AsyncGenerator[tuple[Lease, list[Entry]]]:
        """Async context manager: acquire the lease (the exclusive right to append), and yield it with the entries.

        Raises `SessionBusy` while the session is being driven, and `SessionNotFound` if it does not exist, unless
        `begin` is true.
        """
        if begin:
            await self._check_id_of_new_session()
        elif await self.store.info(self.session_id) is None:
            raise SessionNotFound(f"there is no session {self.session_id!r}: use run() to begin it")
        async with pause_commands(self._driver.attach_to_loop(), self.session_id):
            lease = await self.store.acquire(self.session_id)
            try:
                yield lease, await self.store.read(self.session_id)
            finally:
                await finish_before_cancel(lambda: self.store.release(lease))


def prefix_path_with_job_handle(handle: str, path: str) -> str:
    """Prefix the path of a background agent's display slot or question with the handle of its background job."""
    return f"{handle}/{path}" if path else handle


async def _wait_for_entry_or_shutdown(coming: "asyncio.Future[Any]", process_end: ShutdownSignal | None) -> None:
    """Wait for the next entry, for at most `WATCH_POLL_SECONDS`; less if the process is asked to end."""
    if process_end is None:
        await asyncio.wait((coming,), timeout=WATCH_POLL_SECONDS)
    elif process_end.requested:  # nothing tells when the driver is done
        await asyncio.wait((coming,), timeout=LAST_POLL_SECONDS)
    else:
        told = asyncio.ensure_future(process_end.wait())
        try:
            await asyncio.wait((coming, told), timeout=WATCH_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_await_tasks((told,))


async def _next_entry(subscription: Subscription) -> Entry | None:
    """Return the next entry of a subscription; None when it was closed."""
    async for entry in subscription:
        return entry
    return None


def require_searchable_store(store: Store) -> SearchableStore:
    """Return the store if it can be searched. Raises `UnsupportedByStore` otherwise."""
    if not isinstance(store, SearchableStore):
        kind = type(store).__name__
        raise UnsupportedByStore(f"a {kind} cannot be searched: keep sessions in 'sqlite:PATH' or 'postgresql://…'")
    return store


async def iterate_sessions(store: Store, *, prefix: str = "") -> AsyncIterator[SessionInfo]:
    """Yield every session of a store but those of the runtime itself, reading page by page."""
    offset = 0
    while page := await store.list(prefix=prefix, limit=_PAGE_SIZE, offset=offset):
        for each in page:
            if is_listed(store, each.session_id):
                yield each
        offset += len(page)
