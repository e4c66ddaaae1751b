"""The `Session` class: one conversation, with its runs, questions, posts and approvals.

Any process that opens a session can read it, answer questions and post to it; only one process at a time drives it.
All objects for one session in a process share its queue of runs and its watchers.
Posts (steering, follow-ups, answers, inbox resolutions, cancels) are durable when the call returns, and reach the
driver in whichever process it is.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, overload

import msgspec

from perdure._core.log.fold import State, fold_entries
from perdure._core.log.store import Post, cancel_and_await_tasks
from perdure._core.model.protocol import Model
from perdure._core.people.inbox import InboxItem, build_resolution_post, list_inbox_items
from perdure._core.people.mailbox import (
    ANSWER_POST,
    CANCEL_POST,
    FOLLOW_UP_POST,
    STEER_POST,
    build_message_post,
    build_revocation_post,
    get_answer_post_id,
)
from perdure._core.run.outcome import Outcome
from perdure._core.run.spec import CancelMode, find_shutdown_signal
from perdure._core.tools.context import D
from perdure._core.values import checks
from perdure._core.values.clock import new_id
from perdure._core.values.error import Fenced, SessionBusy, ShuttingDown, UsageError
from perdure._core.values.event import GrantRevoked
from perdure._core.values.event_class import QuestionAsked
from perdure._core.values.jsonable import to_jsonable, to_text
from perdure._core.values.message import Content, Message, ToolCall, ToolResult, check_labels
from perdure._runtime.agent.active import (
    build_configuration_events,
    choose_compaction,
    encode_compaction,
    get_active_agent,
    get_session_configuration,
)
from perdure._runtime.agent.handoff import ACTIVE_AGENT
from perdure._runtime.agent.output import Output, T
from perdure._runtime.agent.overrides import (
    Overrides,
    Prompt,
    RunOverrides,
    add_output,
    check_cancel_mode,
    check_overrides,
)
from perdure._runtime.resume.outcome import build_error_outcome
from perdure._runtime.resume.reasons import (
    CUT_OFF_REASON,
    find_automatic_reasons,
    find_resume_reasons,
    is_waiting_run_cancelled,
    list_expired_questions,
)
from perdure._runtime.tasks import sleep_until_shutdown

from .commands import (
    CallToolCommand,
    CompactCommand,
    RunPromptCommand,
    add_session_role,
    build_resume_command,
    build_run_command,
    build_wake_command,
    to_user_or_assistant_message,
)
from .driver import NOTHING_NEW, is_running_here
from .stored import StoredSession, prefix_path_with_job_handle
from .stream import RunStream

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from perdure._context.history.compaction import Compaction
    from perdure._core.permission.gate import Explanation
    from perdure._core.permission.grants import Grant

    from .slots import SessionDisplay

ReasonFinder = Callable[[State, Sequence[Post], float], frozenset[str]]
"""Function that finds the reasons to continue a session, from its state, its posts, and the time."""

ATTEND_POLL_SECONDS = 1.0
"""The default interval at which `attend` looks for posts."""


class Session(StoredSession[D]):
    """A conversation with an agent: run, stream, resume, cancel. Creating the object does not access the store.

    Objects for the same session are equivalent, whichever agent made them: a run waits for the runs of all of them.
    """

    _ineffective_reasons: frozenset[str] = frozenset()
    """Reasons that were there at the last wake; one that is found again had no effect then."""

    # -- running -------------------------------------------------------------------------------------------------------

    @overload
    async def run(
        self,
        prompt: Prompt,
        *,
        output: Output[T] | Mapping[str, Any] | None = None,
        input_id: str = "",
        take_over: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> Outcome[T]: ...
    @overload
    async def run(
        self,
        prompt: Prompt,
        *,
        output: "TypeForm[T]",
        input_id: str = "",
        take_over: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> Outcome[T]: ...
    async def run(
        self,
        prompt: Prompt,
        *,
        output: Any = None,
        input_id: str = "",
        take_over: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> Outcome[Any]:
        """Answer a prompt, and return when the run has ended. Cancelling this call cancels the run.

        A list of messages is a conversation that the caller brings along: it is added to that of the session, and its
        last message, of the user or with results of tools, is answered.

        `output` is a type that the model has to return a value of: `outcome.value` is that value, validated.

        `input_id` is your id for this prompt: sent again under the same id, it is answered once, and the first outcome
        is returned, or that of a run that waits for an answer. The id alone counts: another prompt under the same id is
        not answered, and a warning is logged.

        `take_over` takes the session from another process that drives it, which is stopped at its next step; for a run
        of this process it waits, as any run does.
        """
        command = build_run_command(
            self.agent, self.role, prompt, add_output(overrides, output), input_id, take_over=take_over
        )
        return await self._perform_prompt(command)

    @overload
    def stream(
        self,
        prompt: Prompt,
        *,
        output: Output[T] | Mapping[str, Any] | None = None,
        backpressure: bool = False,
        input_id: str = "",
        take_over: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> RunStream[T]: ...
    @overload
    def stream(
        self,
        prompt: Prompt,
        *,
        output: "TypeForm[T]",
        backpressure: bool = False,
        input_id: str = "",
        take_over: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> RunStream[T]: ...
    def stream(
        self,
        prompt: Prompt,
        *,
        output: Any = None,
        backpressure: bool = False,
        input_id: str = "",
        take_over: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> RunStream[Any]:
        """Answer a prompt, and yield each event as it happens.

        Leaving the iteration early does not cancel the run. With `backpressure` a slow reader slows the run; otherwise
        it gets fewer and larger deltas, and if it misses durable events an event reports that.

        A prompt that was sent before under the same `input_id` yields the events of the run that answered it, as far
        as they are stored: messages, calls, questions, results and the end, but no deltas. While that run is in
        progress here, or if it is continued because a crash has interrupted it or its question was answered, the stored
        ones come first, and then each event as it happens.
        """
        command = build_run_command(
            self.agent, self.role, prompt, add_output(overrides, output), input_id, take_over=take_over
        )
        return RunStream(
            command.run_id,
            partial(self._perform_prompt, command),
            partial(self._cancel_run, command.run_id),
            self,
            backpressure=backpressure,
            input_id=input_id,
            output=command.overrides.get("output"),
        )

    @overload
    async def resume(
        self,
        *,
        output: Output[T] | Mapping[str, Any] | None = None,
        take_over: bool = False,
        unpark: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> Outcome[T]: ...
    @overload
    async def resume(
        self,
        *,
        output: "TypeForm[T]",
        take_over: bool = False,
        unpark: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> Outcome[T]: ...
    async def resume(
        self, *, output: Any = None, take_over: bool = False, unpark: bool = False, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[Any]:
        """Continue a run that was interrupted by a crash, a kill or a power cut, or that waited for an answer.

        Calls that had finished keep their results. Calls that had been started are settled by their `effect`; those
        that had not are made now. A run that was resumed three times without progress is parked. `unpark` takes up a
        run that was parked, if no other run has begun since: it keeps its id, its `input_id` and its usage, and gets
        three more attempts. Calls that were open when it was parked have their results already.

        Raises `UsageError` if an agent of another name began the run: it may lack its tools.
        """
        command = build_resume_command("session.resume", add_output(overrides, output), take_over, unpark)
        return await self._driver.perform_command(command)

    @overload
    def resume_stream(
        self,
        *,
        output: Output[T] | Mapping[str, Any] | None = None,
        backpressure: bool = False,
        take_over: bool = False,
        unpark: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> RunStream[T]: ...
    @overload
    def resume_stream(
        self,
        *,
        output: "TypeForm[T]",
        backpressure: bool = False,
        take_over: bool = False,
        unpark: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> RunStream[T]: ...
    def resume_stream(
        self,
        *,
        output: Any = None,
        backpressure: bool = False,
        take_over: bool = False,
        unpark: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> RunStream[Any]:
        """Continue a run like `resume`, and yield each event from now on, as `stream` does.

        Events from before the interruption are in the log: `watch` or `read_run` yields them. The iteration raises what
        `resume` would raise, as when there is nothing to resume.
        """
        command = build_resume_command("session.resume_stream", add_output(overrides, output), take_over, unpark)
        run, cancel = partial(self._driver.perform_command, command), partial(self._cancel_run, command.run_id)
        output = command.overrides.get("output")
        return RunStream(command.run_id, run, cancel, self, backpressure=backpressure, output=output)

    async def call(self, tool: str, arguments: dict[str, Any], **overrides: Unpack[Overrides[D]]) -> ToolResult:
        """Call a tool without a model, with the permissions and the log of any other call.

        It waits for an answer for `answer_timeout_seconds` of the agent; then the tool is told that none arrived.
        """
        check_overrides(add_output(overrides, None))
        checks.require_text("session.call", "tool", tool)
        if not isinstance(arguments, dict):
            checks.raise_config_error("session.call", "arguments", arguments, "give a dict")
        if self._driver.find_active_driver() is None and (await self.read_state()).is_waiting:
            raise UsageError(
                f"session {self.session_id!r} waits for an answer: session.answer() it, or cancel() its run"
            )
        await self._check_id_of_new_session()
        from perdure._core.run.tool_calls.direct import (
            build_direct_call_engine,  # at first use, which few programs have
        )

        call = ToolCall(new_id(), tool, to_text(arguments))
        engine: RunOverrides = {**add_output(overrides, None), "engine": build_direct_call_engine(call)}
        outcome = await self._driver.perform_command(
            CallToolCommand(new_id(), add_session_role(engine, self.role), tool)
        )
        result: ToolResult | None = outcome.output
        if result is None or result.call_id != call.call_id:
            raise outcome.error or UsageError(f"the call of {tool!r} was cancelled before it began")
        return result

    async def skill(
        self,
        name: str,
        arguments: Any = None,
        *,
        input_id: str = "",
        labels: Sequence[str] = (),
        **overrides: Unpack[Overrides[D]],
    ) -> Outcome[Any]:
        """Begin a run with a skill: the model is sent its text, followed by the arguments, as text or as JSON.

        `input_id` is your id for this input, as for `run`: it is answered once. `labels` are those of the arguments.
        """
        from .expansion import build_skill_message  # at first use: for a quick start

        await self._check_id_of_new_session()
        agent = get_active_agent(self.agent, await self.read_state())
        message, loaded = await build_skill_message(agent, name, arguments, "code", check_labels(labels))
        command = build_run_command(self.agent, self.role, message, add_output(overrides, None), input_id)
        return await self._driver.perform_command(msgspec.structs.replace(command, events=(loaded,)))

    async def compact(self) -> bool:
        """Compact the conversation now, by a summary for the model; return False if that would not make it shorter.

        Needs an agent with a `compaction`. Raises `SessionBusy` while another process drives the session.
        """
        agent = get_active_agent(self.agent, state := await self.read_state())
        if choose_compaction(agent, get_session_configuration(self.agent, agent, state)) is None:
            raise UsageError("this agent has no compaction: give it one, as in Agent(compaction=Compaction())")
        outcome = await self._driver.perform_command(CompactCommand(new_id(), add_session_role({}, self.role)))
        return bool(outcome.output)

    async def configure(
        self,
        *,
        model: Model | str | None = None,
        instructions: str | None = None,
        role: str | None = None,
        agent: str | None = None,
        compaction: "Compaction | str | None" = None,
    ) -> None:
        """Change options of this session alone, from its next run on. The change is stored; `""` resets an option.

        Of a model object, the name is stored: in another process, the session has to be given the object again. Of a
        `compaction`, the limits and instructions are; its model and strategy are those of the agent's.

        `agent` makes another agent the active one, of those that the conversation can be handed over to; `""` is the
        first. A model, instructions and a role apply to the agent that is active then, and not to others that take over
        later.
        """
        changes = {"instructions": instructions, "role": role, ACTIVE_AGENT: agent}
        given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        for name, value in given.items():
            checks.require_text("session.configure", name, value)
        if compaction is not None:
            given["compaction"] = compaction if compaction == "" else encode_compaction(compaction)
        if model is not None:
            from .additions import name_session_model  # at first use: few sessions have a model of their own

            given["model"] = name_session_model(self, model)
        if given:
            await self._append_events(
                *build_configuration_events(self.agent, await self.read_state(), given), begin=True
            )

    # -- from any process ----------------------------------------------------------------------------------------------

    async def steer(self, content: Content | Message, *, post_id: str = "") -> bool:
        """Send the model a message that it gets before its next turn; without a run, at the beginning of the next one.

        A message of the assistant, as in `steer(assistant("…"))`, is added to the conversation as its own words.
        `post_id` is your id for the message: sent again under the same id, it is delivered once, and False is returned.
        """
        return await self._post_message(STEER_POST, to_user_or_assistant_message(content, "steering"), post_id)

    async def follow_up(self, content: Content | Message, *, post_id: str = "") -> bool:
        """Send the model a message that it gets when the run would otherwise end. `post_id` is as for `steer`."""
        return await self._post_message(FOLLOW_UP_POST, to_user_or_assistant_message(content, "follow_up"), post_id)

    async def cancel(self, mode: CancelMode = "now") -> bool:
        """Cancel the current run, here or in another process: now, after the running tool calls, or after the turn.

        Return True if there was a run, also one that was cancelled before. An interrupted run ends when it is resumed.
        A run that waits for an answer accepts none any more, and ends, in every mode, when it is resumed: by `resume`,
        `wake` or `attend`.
        """
        check_cancel_mode(mode)
        if (driver := self._driver.find_active_driver()) is not None:
            return driver.cancel_run(driver.run_id, mode)
        state = await self.read_state()
        if state.run is None or not state.is_interrupted:
            return False
        run_id = state.run.run_id
        await self._store_post(
            Post(f"{CANCEL_POST}-{run_id}-{mode}", CANCEL_POST, {"run_id": run_id, "mode": mode}, self._now())
        )
        return True

    async def questions(self) -> list[QuestionAsked]:
        """Return the questions of the run that can be answered, and those of agents that work in the background for it.

        A question that has expired, or has an answer that the run has not taken yet, is not among them.
        """
        state, posts = await self.read_state(), await self.store.posts(self.session_id)
        closed = {post.text_field("ask_id") for post in posts if post.kind == ANSWER_POST}
        closed |= {*await self._find_lost_questions(state), *list_expired_questions(state, self._steady_now())}
        is_cancelled = is_waiting_run_cancelled(state, posts)
        asked = [] if is_cancelled else [each for each in state.open_questions if each.ask_id not in closed]
        for handle, session in self._background_sessions(state).items():
            theirs = await session.questions()
            asked += [
                msgspec.structs.replace(each, path=prefix_path_with_job_handle(handle, each.path)) for each in theirs
            ]
        return asked

    async def answer(self, ask_id: str, answer: Any, *, by: str = "") -> bool:
        """Answer an open question, even while no process runs the session: `resume` then continues the run.

        A permission question takes `True`, `False` or a `Verdict` for all its calls, or a dict with one of these for
        each call; a verdict that is to be remembered has to be given for each call. `by` says who answers. A question
        is answered once: returns False if it was answered before, has expired, or its run is cancelled or over. It also
        returns False if no answer can reach the call that asked, because the call died with its process and is not made
        again.

        Raises `UsageError` if the session never asked a question with this id, and `ConfigError` if the answer does not
        fit the question, which then stays open.
        """
        checks.require_text("session.answer", "ask_id", ask_id, non_empty=True)
        checks.require_text("session.answer", "by", by)
        state = await self.read_state()
        question = state.questions_by_id.get(ask_id)
        if question is None:
            if await self._has_had_slot(ask_id):
                return await self.display.answer_slot(ask_id, answer, by=by)
            for session in self._background_sessions(state, done=True).values():
                if await session._has_asked_anywhere(ask_id):  # noqa: SLF001 - the same class
                    return await session.answer(ask_id, answer, by=by)
            known = ", ".join([repr(each.ask_id) for each in await self.questions()]) or "none"
            raise UsageError(f"session {self.session_id!r} has no open question {ask_id!r}: open are {known}")
        from perdure._core.run.tool_calls.questions import validate_answer  # at first use: few programs ask

        given = (await self._complete_redaction()).redact_value(validate_answer(question, answer, by))
        body = {"ask_id": ask_id, "answer": given, **({"by": by} if by else {})}
        if ask_id in state.answers_by_question or ask_id in list_expired_questions(state, self._steady_now()):
            return False
        if is_waiting_run_cancelled(state, await self.store.posts(self.session_id)):
            return False
        if ask_id in await self._find_lost_questions(state):
            return False
        return await self._post_answer(ask_id, body)

    @property
    def display(self) -> "SessionDisplay":
        """The display slots of the session, to read, answer and close from any process."""
        from .slots import SessionDisplay  # at first use: most programs show nothing

        return SessionDisplay(
            self,
            self.read_state,
            self._store_post,
            self._append_events,
            self._has_had_slot,
            record=self._append_or_post,
            child_sessions=self._background_sessions,
            post_answer=self._post_answer,
            find_lost_questions=self._find_lost_questions,
        )

    async def explain(self, tool: str, arguments: dict[str, Any]) -> "Explanation":
        """Explain whether a tool call would be allowed, denied or asked about, and why.

        Nothing is called, asked or logged but the hooks of the tool. Raises `ConfigError` for what could not be called.
        """
        checks.require_text("session.explain", "tool", tool, non_empty=True)
        if not isinstance(arguments, dict):
            checks.raise_config_error("session.explain", "arguments", arguments, "give a dict")
        from .permissions import explain_permission  # at first use, as for the display

        call = ToolCall(new_id(), tool, to_text(arguments))
        state = await self.read_state()
        return await explain_permission(
            self.agent, self.session_id, state, call, store=self.store, run=self._driver.run
        )

    async def grants(self) -> "list[Grant]":
        """Return the grants that apply here: permissions for more than one call, for this session or for all."""
        from .permissions import get_current_gate, list_grants

        state, posts = await self.read_state(), await self.store.posts(self.session_id)
        gate = get_current_gate(self.agent, state, self._driver.run)
        return list_grants(gate, self.session_id, state, self.store, posts)

    async def revoke(self, grant_id: str) -> bool:
        """Revoke a grant in every process; return False if there is no such grant.

        A grant for all sessions is removed from the agent's gate as well. Without a `GrantFile`, another process that
        was given the answer keeps it until it opens this session, or ends.
        """
        checks.require_text("session.revoke", "grant_id", grant_id, non_empty=True)
        if grant_id not in {each.grant_id for each in await self.grants()}:
            return False
        from .permissions import forget_grant, get_current_gate  # at first use: few revoke grants

        state = await self.read_state()
        gate = get_current_gate(self.agent, state, self._driver.run)
        forget_grant(gate, grant_id, self.session_id, state, self.store)
        if await self.store.info(self.session_id) is not None:
            try:
                await self._append_events(GrantRevoked(grant_id))
            except SessionBusy:  # a driver applies the post before its next call
                await self._store_post(build_revocation_post(grant_id, self._now()))
        return True

    async def inbox(self) -> list[InboxItem]:
        """Return the inbox items of the session and of its background agents: results from outside, here or due."""
        entries = await self.store.read(self.session_id)
        items = list_inbox_items(entries, await self.store.posts(self.session_id))
        for session in self._background_sessions(fold_entries(entries), done=True).values():
            items += await session.inbox()
        return items

    async def resolve(self, item_id: str, response: Any, *, labels: Sequence[str] | None = None) -> bool:
        """Deliver a result that an agent of the session waits for. Return False if it was delivered before.

        The agent that added the item gets it during its run. A result for a subagent that has ended is passed to the
        agent above it, one for a background agent to the session that gave it its task. The response is labelled
        `untrusted`, unless you give other `labels`: `()` for words of your own.
        """
        checks.require_text("session.resolve", "item_id", item_id, non_empty=True)
        entries, posts = await self.store.read(self.session_id), await self.store.posts(self.session_id)
        if item_id not in {each.item_id for each in list_inbox_items(entries, posts)}:
            for session in self._background_sessions(fold_entries(entries), done=True).values():
                if item_id in {each.item_id for each in await session.inbox()}:
                    return await session.resolve(item_id, response, labels=labels)
            raise UsageError(f"session {self.session_id!r} has no item {item_id!r} in its inbox: see session.inbox()")
        redacted = (await self._complete_redaction()).redact_value(to_jsonable(response))
        is_new = await self._store_post(build_resolution_post(item_id, redacted, self._now(), labels))
        from perdure._runtime.subagents.late_results import (
            forward_late_inbox_results,  # at first use: for a quick start
        )

        await forward_late_inbox_results(self.store, self.session_id, self.agent.clock)
        return is_new

    @overload
    async def wake(
        self, *, output: Output[T] | Mapping[str, Any] | None = None, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[T] | None: ...
    @overload
    async def wake(self, *, output: "TypeForm[T]", **overrides: Unpack[Overrides[D]]) -> Outcome[T] | None: ...
    async def wake(self, *, output: Any = None, **overrides: Unpack[Overrides[D]]) -> Outcome[Any] | None:
        """Continue the session if there is a reason to. Return None if there is none, or if it is running already.

        It also takes up tasks of background agents that another process has left, and does not wait for them: if they
        are the only reason, it returns None, and they run in this process. Before the process ends, `wait_for_agents`,
        and `wake` once more to pass their results to the model.

        A waiting run continues when its question was answered or has expired, or when it was cancelled. A run that a
        crash interrupted is resumed; after three times without progress it is parked. Otherwise a run without a prompt
        passes the posts to the model. `output` and `overrides` are as for `run` and `resume`: code that a run was begun
        with has to be passed again. Of its `output` the schema is stored: without the type, values are valid JSON.
        Raises `UsageError`, as `resume` does, for a run that an agent of another name began.
        """
        return await self._wake_for_reasons(add_output(overrides, output), find_resume_reasons)

    @overload
    def attend(
        self,
        *,
        seconds: float = ...,
        output: Output[T] | Mapping[str, Any] | None = None,
        **overrides: Unpack[Overrides[D]],
    ) -> AsyncGenerator[Outcome[T]]: ...
    @overload
    def attend(
        self, *, seconds: float = ..., output: "TypeForm[T]", **overrides: Unpack[Overrides[D]]
    ) -> AsyncGenerator[Outcome[T]]: ...
    async def attend(
        self, *, seconds: float = ATTEND_POLL_SECONDS, output: Any = None, **overrides: Unpack[Overrides[D]]
    ) -> AsyncGenerator[Outcome[Any]]:
        """Wake the session whenever there is a reason to, and yield each outcome. Runs until the caller stops it.

        Reasons are those of `wake`, except steering, and except inbox items that were added without `wake=True`. While
        another process drives the session, that process handles the posts.

        An error does not end it, whether the store is out of reach, or the run was begun with code that is not passed
        here. It is yielded once, as an outcome with status `failed` and the error, and then it is tried again.

        With an agent that a `Shutdown` has wrapped, it ends when the process is asked to end.
        """
        checks.require_number("session.attend", "seconds", seconds)
        check_overrides(add_output(overrides, output))
        process_end = find_shutdown_signal(self.agent.engine)
        reported = ""
        while process_end is None or not process_end.requested:
            try:
                outcome = await self.attend_once(output=output, **overrides)
                reported = ""
            except (SessionBusy, Fenced):  # another process drives the session, or took it over meanwhile
                outcome = None
            except ShuttingDown:
                return
            except Exception as error:  # noqa: BLE001 - any error becomes an outcome, and the next attempt may succeed
                text = repr(error)
                outcome = None if text == reported else build_error_outcome(self.session_id, error)
                reported = text
            if outcome is not None:
                yield outcome
            await sleep_until_shutdown(self.agent.clock, seconds, process_end)

    async def attend_once(self, *, output: Any = None, **overrides: Unpack[Overrides[D]]) -> Outcome[Any] | None:
        """Continue the session if there is a new reason to, as `attend` does; return `None` if there is none.

        A reason that was there before on this object, and had no effect, is not new. Raises `SessionBusy` if another
        process drives the session.
        """
        return await self._wake_for_reasons(add_output(overrides, output), self._find_new_reasons)

    async def wait_for_agents(self, seconds: float | None = None) -> bool:
        """Wait until the background agents of this session in this process are done; return False after `seconds`.

        Their results are in the inbox then: `wake` passes them to the model. An agent that waits for an answer is not
        done. Use it before the end of `async with agent`, which stops them. Tasks that another process has left are
        waited for once `wake`, `attend` or a run has taken them up.
        """
        if seconds is not None:
            checks.require_number("session.wait_for_agents", "seconds", seconds)
        timers = [] if seconds is None else [asyncio.ensure_future(self.agent.clock.sleep(seconds))]
        try:
            while tasks := self._driver.list_background_tasks():
                await asyncio.wait((*tasks, *timers), return_when=asyncio.FIRST_COMPLETED)
                if any(timer.done() for timer in timers):
                    return not self._driver.list_background_tasks()
        finally:
            await cancel_and_await_tasks(timers)
        return True

    # -- inside --------------------------------------------------------------------------------------------------------

    def _perform_prompt(self, command: RunPromptCommand) -> Awaitable[Outcome[Any]]:
        """Run a prompt, its commands, skills and mentions expanded; return its outcome, which has to be awaited."""
        if not (self.agent.can_expand_prompts or checks.has_control_characters(self.session_id)):
            return self._driver.perform_command(command)
        from .expansion import expand_and_run  # at first use: most prompts are plain text

        return expand_and_run(self, command, self._driver, self._check_id_of_new_session)

    async def _post_message(self, kind: str, message: Message, post_id: str) -> bool:
        """Store a message for the model as a post (a message to this session)."""
        checks.require_text(f"session.{kind}", "post_id", post_id)
        redacted = (await self._complete_redaction()).redact_value(message)
        return await self._store_post(build_message_post(kind, redacted, post_id or new_id(), self._now()))

    async def _post_answer(self, ask_id: str, body: dict[str, Any]) -> bool:
        """Store the answer to a question; return False if there is one already, or its run has just ended."""
        from perdure._runtime.resume.lost_questions import is_answer_too_late  # at first use: for a quick start

        post_id = get_answer_post_id(ask_id)
        if not await self._store_post(Post(post_id, ANSWER_POST, body, self._now())):
            return False
        return not await is_answer_too_late(self.store, self.session_id, await self.read_state(), ask_id, post_id)

    async def _find_lost_questions(self, state: State) -> Collection[str]:
        """Return the ids of the open questions that no answer can reach any more."""
        from perdure._runtime.resume.lost_questions import find_lost_questions  # at first use: for a quick start

        driver = self._driver.find_active_driver()
        is_driven_here = driver is not None or is_running_here(self._driver.place)
        return await find_lost_questions(self.store, self.session_id, state, is_driven_here=is_driven_here)

    async def _wake_for_reasons(self, options: RunOverrides, find_reasons: ReasonFinder) -> Outcome[Any] | None:
        """Continue the session if `find_reasons` finds reasons to, or background tasks were interrupted."""
        check_overrides(options)
        if self._driver.find_active_driver() is not None:  # the run in progress gets the posts
            return None
        state, stranded = await self.read_state(), False
        if state.kept_values:
            from perdure._runtime.subagents.late_results import (
                forward_stranded_results,  # at first use: for a quick start
            )

            stranded = bool(await forward_stranded_results(self.store, self.session_id, state, self.agent.clock))
        posts = await self.store.posts(self.session_id)
        found = find_reasons(state, posts, self._steady_now())
        if not (found or stranded or self._has_background_work(state, posts)):
            return None
        try:
            outcome = await self._driver.perform_command(
                build_wake_command(state if found else None, options, self.role)
            )
        except SessionBusy:
            if not found or CUT_OFF_REASON in found:  # it was not interrupted: another process drives it
                return None
            raise
        if outcome.reason == NOTHING_NEW:  # another process was quicker
            return None
        # found again, they had no effect
        self._ineffective_reasons = find_resume_reasons(state, posts, self._steady_now()) - {CUT_OFF_REASON}
        return outcome

    def _has_background_work(self, state: State, posts: Sequence[Post]) -> bool:
        """Return True if tasks of background agents were interrupted, and this process has not resumed them."""
        if not state.inbox:
            return False
        found = [each.background for each in get_active_agent(self.agent, state).extensions]
        return any(each is not None and each.has_unfinished_tasks(state, posts, self.store) for each in found)

    def _find_new_reasons(self, state: State, posts: Sequence[Post], now: float) -> frozenset[str]:
        """Return the reasons to continue, without those that had no effect before and would repeat for ever."""
        return find_automatic_reasons(state, posts, now) - self._ineffective_reasons

    def _cancel_run(self, run_id: str, mode: CancelMode) -> bool:
        check_cancel_mode(mode)
        return self._driver.cancel_run(run_id, mode)

    def __repr__(self) -> str:
        return f"Session({self.session_id!r})"
