"""The conversation of a chat: start, steer, cancel and resume runs of the current session, which can be switched."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from perdure._cli.run.assembly import AgentParts
from perdure._cli.run.options import RunCommandOptions
from perdure._cli.run.project import describe_unused_skills
from perdure._cli.sessions.choice import get_project_path
from perdure._cli.sessions.resume_check import check_can_resume
from perdure._cli.terminal.screen import CUT_OFF
from perdure._core.run.outcome import Outcome
from perdure._core.values.error import PerdureError, SessionBusy, ShuttingDown
from perdure._core.values.event import RunEnded, RunResumed, RunStarted, TurnEnded
from perdure._core.values.event_class import Event
from perdure._core.values.message import StopReason, assistant, user
from perdure._core.watch import Subscription
from perdure._runtime.agent.agent import Agent
from perdure._runtime.agent.overrides import Overrides
from perdure._runtime.session.report import SessionUsage
from perdure._runtime.session.session import Session

Show = Callable[[Event], Awaitable[None]]
"""Function that shows an event of the session."""


class ChatConversation:
    """Starts, steers, cancels and resumes the runs of a chat's session, and passes its events to a display function.

    It knows nothing of the terminal.
    """

    def __init__(
        self, agent: Agent[Any], parts: AgentParts, options: RunCommandOptions, show: Show, note: Callable[[str], None]
    ) -> None:
        self.agent = agent
        self.parts = parts
        self.overrides: Overrides[Any] = parts.build_overrides(options)
        """Options of the next run, such as its model and role."""
        self.session: Session[Any] = agent.session(options.session_id)
        self.usage: SessionUsage | None = None
        """Tokens and cost of the session so far."""
        self.on_session_changed: Callable[[], None] = lambda: None
        self.on_status_changed: Callable[[], None] = lambda: None
        """Called when a run is over, and when the usage has changed."""
        self._options = options
        self._show = show
        self._note = note
        self._task: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self._following: asyncio.Task[None] | None = None
        self._has_steered = False
        self._is_cancelled = False
        self._has_begun = asyncio.Event()
        """Set once the last run has begun, or is over. What is posted before that comes before its prompt."""

    @property
    def is_running(self) -> bool:
        """True while a run is in progress, or waits for an answer."""
        return self._task is not None and not self._task.done()

    @property
    def can_be_steered(self) -> bool:
        """True while a run is in progress that takes messages; one that was cancelled takes none until it ends."""
        return self.is_running and not self._is_cancelled

    async def open(self, session: Session[Any]) -> None:
        """Make a session the current one, and show its events from now on."""
        await self._stop_following()
        self.session = session
        self._subscription = session.subscribe(backpressure=True)  # a slow terminal slows the run, and misses nothing
        self._following = asyncio.ensure_future(self._follow(self._subscription))
        self.usage = await session.usage()
        self.on_session_changed()

    async def _follow(self, subscription: Subscription) -> None:
        async for entry in subscription:
            if isinstance(entry.event, (RunStarted, RunResumed)) and not entry.event.path:
                self._has_begun.set()
            await self._show(entry.event)
            if isinstance(entry.event, (TurnEnded, RunEnded)) and not entry.event.path:
                self.usage = await self.session.usage()
                self.on_status_changed()

    async def _stop_following(self) -> None:
        if self._subscription is not None and self._following is not None:
            self._subscription.close()
            await asyncio.wait((self._following,))

    # -- runs ----------------------------------------------------------------------------------------------------------

    async def send(self, text: str) -> bool:
        """Begin a run with a prompt; while one is in progress, steer it instead. Return True if it was steered.

        A prompt that is typed while a cancelled run ends waits for that, and further ones for the run that it begins.
        """
        if await self._wait_for_a_run_to_steer():
            self._has_steered = True
            await self.session.steer(text)
            return True
        if "/" in text:
            for line in describe_unused_skills(text, ".", self.agent.all_skills()):
                self._note(line)
        prompt = user(text, metadata=self._options.agent.build_prompt_metadata(get_project_path()))
        self._begin(lambda: self.session.run(prompt, **self.overrides))
        return False

    async def _wait_for_a_run_to_steer(self) -> bool:
        """Wait until the run in progress takes messages that come after its prompt; return False if there is none."""
        while self.is_running:
            if not self.can_be_steered:
                await self.wait()
            elif not self._has_begun.is_set():
                await self._has_begun.wait()
            else:
                return True
        return False

    async def resume(self, *, unpark: bool = False) -> bool:
        """Go on with the last run of the session, if it was cut off or waits; return False if it has ended.

        Raises `UsageError` if the chat must not continue it.
        """
        state = await self.session.read_state()
        if self.is_running or state.run is None or not (state.is_interrupted or (unpark and state.is_parked)):
            return False
        await check_can_resume(
            self.agent, self.session.store, self.session.session_id, state, self._options.agent.store
        )
        self._begin(lambda: self.session.resume(unpark=unpark))
        return True

    async def cancel(self) -> bool:
        """Cancel the run in progress; what was written so far is kept. Return False if there is none."""
        self._has_steered = False
        if self.is_running:
            await self._has_begun.wait()  # until then there is nothing to cancel
        self._is_cancelled = self.is_running and await self.session.cancel()
        return self._is_cancelled

    async def wait(self) -> None:
        """Wait until the run in progress is over, and all of its events were shown."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def close(self) -> None:
        """Wait for the run, and stop showing events."""
        await self.wait()
        await self._stop_following()

    def _begin(self, start: Callable[[], Awaitable[Outcome[Any] | None]]) -> None:
        self._has_steered = self._is_cancelled = False
        self._has_begun.clear()
        self._task = asyncio.ensure_future(self._perform(start))
        self._task.add_done_callback(lambda _: self.on_status_changed())

    async def _perform(self, start: Callable[[], Awaitable[Outcome[Any] | None]]) -> None:
        """Await a run, and further runs for messages that arrived too late for it; report errors."""
        try:
            outcome = await start()
            while self._has_steered and outcome is not None and outcome.status in {"done", "stopped"}:
                self._has_steered = False
                outcome = await self.session.wake(**self.overrides)
            await keep_partial_reply(self.session, outcome)
            self._report(outcome)
        except ShuttingDown:
            pass
        except SessionBusy as error:
            self._note(f"error: {error}; wait for it, or begin another session with /session NAME")
        except PerdureError as error:
            self._note(f"error: {error}")
        except Exception as error:  # noqa: BLE001 - the chat goes on after any error of a run
            self._note(f"error: unexpected error; please report it: {type(error).__name__}: {error}")
        finally:
            self._has_begun.set()

    def _report(self, outcome: Outcome[Any] | None) -> None:
        if outcome is None:
            return
        if outcome.error is not None:
            self._note(f"error: {outcome.error}")
        elif outcome.status == "parked":
            self._note("the run was parked, because it crashed again and again; /resume goes on with it")
        elif outcome.status == "waiting" and outcome.questions:
            self._note("the run waits for an answer; /resume asks again")


async def keep_partial_reply(session: Session[Any], outcome: Outcome[Any] | None) -> None:
    """If a run was cancelled during a reply, add the partial reply to the conversation, so that the model sees it.

    The log has it in any case; the model would not be sent it again. A reply with calls is left out: they have no
    results.
    """
    if outcome is None or outcome.status != "cancelled" or outcome.message is None:
        return
    partial = outcome.message
    if partial.stop == StopReason.CANCELLED and partial.text.strip() and not partial.tool_calls:
        await session.import_messages([assistant(f"{partial.text}\n\n{CUT_OFF}")])
