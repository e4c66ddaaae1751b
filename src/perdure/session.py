"""A conversation that is kept: what callers see of it. Above: callers. Below: `driver.py`, which has the runs.

Whoever has a session can talk, look, answer and post; only one process at a time drives it. What is posted (steering,
follow-ups, answers, resolutions, cancels) is durable when the call returns, and reaches the driver wherever it is.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import msgspec

from .core import check
from .core.clock import new_id
from .core.error import SessionBusy, UsageError
from .core.event import GrantRevoked, QuestionAsked
from .core.fold import State
from .core.inbox import InboxItem, items_of, resolution
from .core.loop import direct
from .core.mailbox import ANSWER, CANCEL, FOLLOW_UP, STEER, answer_name, letter, revocation
from .core.message import Content, Message, ToolCall, ToolResult
from .core.outcome import Outcome
from .core.permission import Permissions
from .core.plain import clean, to_jsonable, to_text
from .core.question import stated
from .core.run import CancelMode
from .core.store import (
    Post,
    wait_through,
)
from .core.tool import D
from .driver import NOTHING_NEW, Order, look_at, tell
from .extension import ruled
from .keeping import KeptSession, path_below
from .models import open_model
from .once import alone
from .output import Output
from .override import Options, Overrides, as_message, check_mode, check_overrides, with_output
from .speaking import SPEAKS, check_role, configured, speaking
from .stream import RunStream
from .waking import CUT_OFF, is_resumable, is_unwanted, pressing, reasons

if TYPE_CHECKING:
    from .core.permission import Explanation, Gate, Grant
    from .display import SessionDisplay

T = TypeVar("T")

Reasons = Callable[[State, Sequence[Post], float], frozenset[str]]
"""Finds what there is to go on with in a session: what its log amounts to, its posts, and the time."""

ATTEND_SECONDS = 1.0
"""How often `attend` looks for posts."""


class Session(KeptSession[D]):
    """One conversation. Cheap to make; nothing is opened before it is used."""

    _in_vain: frozenset[str] = frozenset()
    """Reasons to go on that are there, and with which it could not."""

    # -- talking -------------------------------------------------------------------------------------------------------

    @overload
    async def run(
        self,
        prompt: Content | Message,
        *,
        output: type[T] | Output[T],
        input_id: str = "",
        take_over: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> Outcome[T]: ...
    @overload
    async def run(
        self,
        prompt: Content | Message,
        *,
        output: Any = None,
        input_id: str = "",
        take_over: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> Outcome[Any]: ...
    async def run(
        self,
        prompt: Content | Message,
        *,
        output: Any = None,
        input_id: str = "",
        take_over: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> Outcome[Any]:
        """Answer a prompt, and return when the run has ended. Cancelling this call cancels the run.

        `output` is a type of which the model has to make a value: `outcome.value` is one, checked.

        `input_id` is your own name for this prompt: sent again under the same name, it is answered once, and the first
        outcome is returned. `take_over` takes the session from whoever drives it, who is stopped at its next step.
        """
        order = self._order(prompt, input_id, take_over, with_output(overrides, output))
        return await self._uncancelled(self._begin(order))

    @overload
    def stream(
        self,
        prompt: Content | Message,
        *,
        output: type[T] | Output[T],
        backpressure: bool = False,
        input_id: str = "",
        take_over: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> RunStream[T]: ...
    @overload
    def stream(
        self,
        prompt: Content | Message,
        *,
        output: Any = None,
        backpressure: bool = False,
        input_id: str = "",
        take_over: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> RunStream[Any]: ...
    def stream(
        self,
        prompt: Content | Message,
        *,
        output: Any = None,
        backpressure: bool = False,
        input_id: str = "",
        take_over: bool = False,
        **overrides: Unpack[Overrides[D]],
    ) -> RunStream[Any]:
        """Answer a prompt, and tell each event as it happens.

        Leaving the iteration early does not cancel the run. With `backpressure` a slow reader slows the run;
        otherwise it gets fewer and larger deltas, and never misses anything that lasts without being told.
        """
        order = self._order(prompt, input_id, take_over, with_output(overrides, output))
        begin, stop = partial(self._begin, order), partial(self._stop, order.run_id)
        return RunStream(
            self, order.run_id, begin, stop, backpressure=backpressure, output=order.overrides.get("output")
        )

    @overload
    async def resume(
        self, *, output: type[T] | Output[T], take_over: bool = False, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[T]: ...
    @overload
    async def resume(
        self, *, output: Any = None, take_over: bool = False, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[Any]: ...
    async def resume(
        self, *, output: Any = None, take_over: bool = False, **overrides: Unpack[Overrides[D]]
    ) -> Outcome[Any]:
        """Go on with a run that was cut off, by a crash, a kill, a power cut, or that waited for an answer.

        Calls that had finished keep their results. Calls that had been started are settled by their `effect`; those
        that had not are made now. A run that was taken up three times and never got anywhere is parked.
        """
        options = with_output(overrides, output)
        check_overrides(options)
        check.flag("session.resume", "take_over", take_over)
        return await self._uncancelled(self._perform(Order("resume", overrides=options, take_over=take_over)))

    async def call(self, tool: str, arguments: dict[str, Any], **overrides: Unpack[Overrides[D]]) -> ToolResult:
        """Call a tool without a model: gated and logged like any other call.

        It cannot wait for an answer beyond the agent's `patience_seconds`: then the tool is told that nobody answers.
        """
        check_overrides(with_output(overrides, None))
        check.text("session.call", "tool", tool)
        if not isinstance(arguments, dict):
            check.refuse("session.call", "arguments", arguments, "give a dict")
        if self._driver.order is None and (await self._state()).waiting:
            message = f"session {self.session_id!r} waits for an answer: session.answer() it first, or cancel() its run"
            raise UsageError(message)
        call = ToolCall(new_id(), tool, to_text(arguments))
        engine: Options = {**with_output(overrides, None), "engine": direct(call)}
        outcome = await self._uncancelled(self._perform(Order("call", new_id(), engine, tool=tool)))
        result: ToolResult | None = outcome.output
        if result is None or result.call_id != call.call_id:
            raise outcome.error or UsageError(f"the call of {tool!r} was cancelled before it began")
        return result

    async def skill(self, name: str, arguments: Any = None, **overrides: Unpack[Overrides[D]]) -> Outcome[Any]:
        """Begin a run with a skill: what it says is told to the model, and then the arguments, as text or as JSON."""
        from .prompting import skill_message

        message, loaded = skill_message(speaking(self.agent, await self._state()), name, arguments, "code")
        order = self._order(message, "", False, with_output(overrides, None))  # noqa: FBT003 - handed through
        return await self._uncancelled(self._perform(msgspec.structs.replace(order, beside=(loaded,))))

    async def compact(self) -> bool:
        """Have the conversation summed up for the model now; `False` when that would not make it shorter.

        Needs an agent with a `compaction`. Raises `SessionBusy` while somebody else drives the session.
        """
        if speaking(self.agent, await self._state()).compaction is None:
            raise UsageError("this agent has no compaction: give it one, as in Agent(compaction=Compaction())")
        outcome = await self._uncancelled(self._perform(Order("compact", new_id())))
        return bool(outcome.output)

    async def configure(
        self,
        *,
        model: str | None = None,
        instructions: str | None = None,
        role: str | None = None,
        agent: str | None = None,
    ) -> None:
        """Change something for this session alone, from its next run on. It is kept in the log; `""` takes it back.

        `agent` is who speaks, of those that the conversation can be handed over to; `""` is the session's own. A model,
        instructions and a role are for whoever speaks then, and not for others who take the conversation over.
        """
        changes = {"model": model, "instructions": instructions, "role": role, SPEAKS: agent}
        given = {name: value for name, value in changes.items() if value is not None}
        for name, value in given.items():
            check.text("session.configure", name, value)
        if model:
            open_model(model)
        if given:
            await self._note(*configured(self.agent, await self._state(), given), begin=True)

    # -- from any process ----------------------------------------------------------------------------------------------

    async def steer(self, content: Content | Message, *, post_id: str = "") -> bool:
        """Tell the model something between two turns; without a run, at the beginning of the next one.

        `post_id` is your own name for it: sent again under the same name, it is told once, and `False` is returned.
        """
        return await self._say(STEER, as_message(content, "steering"), post_id)

    async def follow_up(self, content: Content | Message, *, post_id: str = "") -> bool:
        """Tell the model something when the run would otherwise end."""
        return await self._say(FOLLOW_UP, as_message(content, "follow_up"), post_id)

    async def cancel(self, mode: CancelMode = "now") -> bool:
        """Stop the run that is going, here or in another process: now, after the calls that run, or after the turn.

        Says whether there was one. One that was cut off stops when it is taken up again. One that waits for an answer
        takes none any more, and ends, whatever the mode, when it is taken up: `resume`, `wake` and `attend` do.
        """
        check_mode(mode)
        order = self._driver.order
        if order is not None:
            return self._driver.stop(order.run_id, mode)
        state = await self._state()
        if state.run is None or not state.interrupted:
            return False
        run_id = state.run.run_id
        await self._post(Post(f"{CANCEL}-{run_id}-{mode}", CANCEL, {"run_id": run_id, "mode": mode}, self._now()))
        return True

    async def questions(self) -> list[QuestionAsked]:
        """What somebody has to answer before the run can go on, or an agent that works in the background for it."""
        state = await self._state()
        asked = [] if is_unwanted(state, await self.store.posts(self.session_id)) else state.questions
        for handle, session in self._below(state).items():
            theirs = await session.questions()
            asked += [msgspec.structs.replace(each, path=path_below(handle, each.path)) for each in theirs]
        return asked

    async def answer(self, ask_id: str, answer: Any) -> bool:
        """Answer a question, also while nobody drives the session: `resume` then goes on.

        About permission: `True`, `False` or a `Verdict`, for all its calls, or a dict with one of these for each call.
        A question is answered once: `False` when it has been before, has expired, or its run is cancelled or over.
        """
        check.text("session.answer", "ask_id", ask_id, filled=True)
        state = await self._state()
        question = state.asks.get(ask_id)
        if question is None:
            if await self._has_had(ask_id):
                return False
            for session in self._below(state, done=True).values():
                if await session._knows(ask_id):  # noqa: SLF001 - of its own kind
                    return await session.answer(ask_id, answer)
            known = ", ".join([repr(each.ask_id) for each in await self.questions()]) or "none"
            raise UsageError(f"session {self.session_id!r} has no open question {ask_id!r}: open are {known}")
        body = {"ask_id": ask_id, "answer": self._driver.secrecy.value(stated(question, answer))}
        if ask_id in state.answers or (question.expires_at is not None and self._now() >= question.expires_at):
            return False
        if is_unwanted(state, await self.store.posts(self.session_id)):
            return False
        return await self._post(Post(answer_name(ask_id), ANSWER, body, self._now()))

    @property
    def display(self) -> "SessionDisplay":
        """What people are shown and asked here: to look at, answer, and close, from any process."""
        from .display import SessionDisplay  # at first use: most programs show nothing

        return SessionDisplay(self, self._state, self._post, self._note, self._has_had, below=self._below)

    async def explain(self, tool: str, arguments: dict[str, Any]) -> "Explanation":
        """What would become of a call: allowed, denied or asked about, and why. Nothing is called, asked or logged.

        The tool's own hooks see the arguments, as they would those of a call. Raises `ConfigError` when there is no
        such tool, or it does not take these arguments.
        """
        check.text("session.explain", "tool", tool, filled=True)
        if not isinstance(arguments, dict):
            check.refuse("session.explain", "arguments", arguments, "give a dict")
        from .approval import explained  # at first use, as for the display

        call = ToolCall(new_id(), tool, to_text(arguments))
        return await explained(self.agent, self.session_id, await self._state(), self._driver.run, call)

    async def grants(self) -> "list[Grant]":
        """What was decided for longer than one call, and holds here: in this session, or for ever."""
        from .approval import standing

        state, posts = await self._state(), await self.store.posts(self.session_id)
        return standing(self._gate, self.session_id, state, posts)

    async def revoke(self, grant_id: str) -> bool:
        """Take back what was decided for longer than one call, in every process; `False` when there is no such grant.

        One that holds for ever is taken from the agent's gate as well; only a `GrantFile` tells other processes so.
        """
        check.text("session.revoke", "grant_id", grant_id, filled=True)
        if grant_id not in {each.grant_id for each in await self.grants()}:
            return False
        if isinstance(self._gate, Permissions):
            self._gate.grants.forget(grant_id)
        if await self.store.info(self.session_id) is not None:
            try:
                await self._note(GrantRevoked(grant_id))
            except SessionBusy:  # somebody drives it, and holds to it before the next call
                await self._post(revocation(grant_id, self._now()))
        return True

    async def inbox(self) -> list[InboxItem]:
        """What the agent waits for, or has waited for, from outside."""
        return items_of(await self.store.read(self.session_id), await self.store.posts(self.session_id))

    async def resolve(self, item_id: str, response: Any) -> bool:
        """Answer an item of the inbox, also while nobody drives the session. `False` when it has been before."""
        check.text("session.resolve", "item_id", item_id, filled=True)
        item = next((each for each in await self.inbox() if each.item_id == item_id), None)
        if item is None:
            raise UsageError(f"session {self.session_id!r} has no item {item_id!r} in its inbox: see session.inbox()")
        return await self._post(resolution(item_id, self._driver.secrecy.value(to_jsonable(response)), self._now()))

    async def wake(self, **overrides: Unpack[Overrides[D]]) -> Outcome[Any] | None:
        """Go on if there is something to go on with. `None` when there is nothing, or somebody drives the session.

        A run that waits goes on when it was answered, nobody answered in time, or it was cancelled. One that a crash
        cut off goes on; after three times without getting anywhere it is parked. Otherwise a run without a prompt
        tells the model what has come. `overrides` are as for `run` and `resume`: code that a run was begun with has to
        be given again.
        """
        return await self._wake(with_output(overrides, None), reasons)

    async def attend(
        self, *, seconds: float = ATTEND_SECONDS, **overrides: Unpack[Overrides[D]]
    ) -> AsyncIterator[Outcome[Any]]:
        """Wake the session whenever there is a reason to, and tell each outcome. Never ends by itself.

        Reasons are those of `wake`, but that steering is none, and items of the inbox are only when they were added
        with `wake=True`. While somebody else drives the session, they hear of what comes.
        """
        check.number("session.attend", "seconds", seconds)
        options = with_output(overrides, None)
        while True:
            with suppress(SessionBusy):
                if (outcome := await self._wake(options, self._new_reasons)) is not None:
                    yield outcome
            await self.agent.clock.sleep(seconds)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _order(self, prompt: Content | Message, input_id: str, take_over: bool, overrides: Options) -> Order:  # noqa: FBT001 - handed through
        check_overrides(overrides)
        check.text("session.run", "input_id", input_id)
        if clean(input_id) != input_id:
            check.refuse("session.run", "input_id", input_id, "give text that UTF-8 can hold")
        check.flag("session.run", "take_over", take_over)
        check_role(self.agent, overrides.get("role", self.role))
        message = as_message(prompt)
        return Order("run", new_id(), overrides, (message,), input_id=input_id, take_over=take_over)

    async def _begin(self, order: Order) -> Outcome[Any]:
        """Do what the message itself asks for with `/name` and `@file`, then drive the run."""
        if not self._is_directed():
            return await self._perform(order)
        if not order.input_id:
            handed = State() if not self.agent.handoffs else await self._state()
            return await self._perform(await self._directed(order, handed))
        async with alone(*self._driver.key, order.input_id):  # so that what it asks for is done once
            return await self._perform(await self._directed(order, await self._state()))

    async def _directed(self, order: Order, state: State) -> Order:
        from .prompting import directed_order

        return await directed_order(self, order, state)

    def _is_directed(self) -> bool:
        return any(
            agent.hooks or agent.skills or agent.mentions or any(each.hooks or each.skills for each in agent.extensions)
            for agent in self.agent.reachable
        )

    async def _perform(self, order: Order) -> Outcome[Any]:
        """Have it done, in the role that this session has; a run that is taken up again keeps its own."""
        if self.role and order.kind != "resume" and "role" not in order.overrides:
            order = msgspec.structs.replace(order, overrides={**order.overrides, "role": self.role})
        return await self._driver.perform(order)

    @property
    def _gate(self) -> "Gate | None":
        """Who decides about calls now."""
        run = self._driver.run
        return run.gate if run is not None else ruled(self.agent.permission, self.agent.extensions)

    async def _say(self, kind: str, message: Message, post_id: str) -> bool:
        check.text(f"session.{kind}", "post_id", post_id)
        discreet = self._driver.secrecy.value(message)
        return await self._post(letter(kind, discreet, post_id or new_id(), self._now()))

    async def _post(self, post: Post) -> bool:
        """Store a post, and tell a run of this process at once; one elsewhere finds it by itself."""
        if not await self.store.post(self.session_id, post):
            return False
        tell(self._driver.key, post)
        return True

    async def _wake(self, options: Options, reasons_of: Reasons) -> Outcome[Any] | None:
        """Go on, if there are such reasons to."""
        check_overrides(options)
        if self._driver.order is not None:  # whoever drives it here hears of what comes
            return None
        state, posts = await self._state(), await self.store.posts(self.session_id)
        found = reasons_of(state, posts, self._now())
        if not (found or self._has_work(state, posts)):
            return None
        order = _going_on(state, options) if found else Order("wake", new_id(), options)
        try:
            outcome = await self._uncancelled(self._perform(order))
        except SessionBusy:
            if not found or CUT_OFF in found:  # it was not: somebody drives it
                return None
            raise
        if outcome.reason == NOTHING_NEW:  # somebody else was quicker
            return None
        self._in_vain = reasons(state, posts, self._now()) - {CUT_OFF}  # those that were of use do not come again
        return outcome

    def _has_work(self, state: State, posts: Sequence[Post]) -> bool:
        """Whether agents that worked in the background were cut off, and nobody here has taken their tasks up."""
        if not (state.inbox and self.agent.extensions):
            return False
        from .subagents.crew import has_work  # which stands above this

        return has_work(self.agent, state, posts, self.store)

    def _new_reasons(self, state: State, posts: Sequence[Post], now: float) -> frozenset[str]:
        """What makes the session go on by itself, without what has not helped before: else that would never end."""
        return pressing(state, posts, now) - self._in_vain

    def _stop(self, run_id: str, mode: CancelMode) -> bool:
        check_mode(mode)
        return self._driver.stop(run_id, mode)

    async def _uncancelled(self, work: Awaitable[Outcome[Any]]) -> Outcome[Any]:
        """Wait for a run. A cancel of the waiting becomes a cancel of the run, which ends in good order first."""
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._driver.run is not None and self._driver.task is task:
                self._driver.run.cancel("now")
            else:
                task.cancel()
            await wait_through((task,))
            look_at(task)
            raise

    def __repr__(self) -> str:
        return f"Session({self.session_id!r})"


def _going_on(state: State, options: Options) -> Order:
    """What a driver is asked to do when a session is to go on by itself."""
    if is_resumable(state):
        return Order("resume", overrides=options, is_optional=True)
    return Order("wake", new_id(), options)
