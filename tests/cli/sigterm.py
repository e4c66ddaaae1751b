"""SIGTERM for processes that run `perdure run`, at any moment: what is lost by that? Above: `test_sigterm.py`.

    python -m tests.cli.sigterm FOLDER COUNT SEED

is a warm process. It forks a child for each trial, ends it with SIGTERM somewhere in its run, lets another one look at
what it left, and writes what was wrong and what happened. Below: the command line, and the nursery of the searches.
"""

import asyncio
import importlib
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from unittest import mock

import msgspec

from perdure import Agent, Status, ToolContext, tool
from perdure._cli.run import assembly as equipment
from perdure._cli.run import session as drive
from perdure._cli.run.options import AgentOptions, RunCommandOptions
from perdure._core.log.codec import decode_event, encode_event
from perdure.engines import fold_entries
from perdure.events import Event, ReplyFinished, TextDelta, ToolCallDelta, ToolFinished, ToolStarted
from perdure.models import register
from perdure.stores import Store, open_store
from perdure.testing import ScriptedModel
from tests.faults.zygote import Bell, Nursery, nursery
from tests.transcript import assert_valid

TURNS = 6
MOST_SECONDS = 28.0
"""From the signal to the end of the process: ten are given to tools, the rest is for a loaded machine."""
MOST_TRIALS_FOR_ONE = 10
"""For each run that is ended in the middle there are at most so many trials."""
LINES = 115
"""What a whole run tells, about."""
SLOW_SECONDS = 0.05
SLOW_SHARE = 3
"""One trial of so many is ended while the slow tool works."""
SLOW_STARTED = '"kind":"tool_started","call_id":"call-3-a"'
QUICK_SECONDS = 0.001


class Findings(msgspec.Struct):
    """What came of the trials."""

    trials: int = 0
    wrong: list[str] = []
    seen: dict[str, int] = {}
    """What happened, and how often."""
    slowest_seconds: float = 0.0


class Model:
    """Speaks a while, and calls two tools in each turn; a slow one in the third."""

    def __init__(self, _name: str) -> None:
        pass

    async def stream(self, request):
        turn = sum(message.role == "assistant" for message in request.messages)
        for word in ("one ", "two ", "three"):
            yield TextDelta(word)
            await asyncio.sleep(QUICK_SECONDS)
        if turn < TURNS:
            yield ToolCallDelta(f"call-{turn}-a", "slow" if turn == TURNS // 2 else "mark", "{}", index=0)
            yield ToolCallDelta(f"call-{turn}-b", "mark", "{}", index=1)
        yield ReplyFinished()


class Lines:
    """A standard output that tells each line as soon as it is whole."""

    encoding = "utf-8"

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell

    def write(self, text: str) -> int:
        for line in text.splitlines():
            self._tell(line)
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


class Trial:
    """One process and its end."""

    def __init__(self, folder: str, number: int, chance: random.Random) -> None:
        self.store = f"sqlite:{folder}/{number}.db"
        self.ledger = f"{folder}/{number}.ledger"
        self.moment = chance.randrange(1, LINES)
        self.is_slow = number % SLOW_SHARE == 0
        self.chance = chance
        self.told: list[str] = []

    def run(self, tell: Callable[[str], object]) -> None:
        """What the child does: the command line, in this process."""
        sys.stdout = Lines(tell)  # as much of a stream as is used
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - to the end of the process
        order = RunCommandOptions(
            session_id="s", prompt="go", agent=AgentOptions(model="busy", store=self.store), as_json=True
        )
        with mock.patch.object(equipment, "basic_tools", return_value=tools(self.ledger)):
            os._exit(drive.run_session(order))

    def carry_out(self, children: Nursery, findings: Findings) -> None:
        """The whole trial."""
        child = children.fork(self.run)
        if self.is_slow:
            children.wait(lambda: child.has_ended or any(SLOW_STARTED in line for line in child.lines))
        else:
            children.until_told(child, self.moment, self.chance)
        sent = time.monotonic()
        child.send(signal.SIGTERM)
        children.end(child)
        findings.slowest_seconds = max(findings.slowest_seconds, time.monotonic() - sent)
        self.told = child.lines
        was_over = child.status == -signal.SIGTERM and '"kind":"run_ended"' in "".join(child.lines[-1:])
        if child.status != 0 and not was_over:  # the last thing that a process does is to put the handlers back
            findings.wrong.append(f"exit code {child.status} after {len(child.lines)} lines: {child.lines[-3:]}")
        auditor = children.fork(self.audit)
        children.end(auditor)
        findings.trials += 1
        findings.seen = dict(
            Counter(findings.seen) + Counter(line for line in auditor.lines if line.startswith("saw "))
        )
        findings.wrong += [
            f"{line} ({'slow tool' if self.is_slow else f'moment {self.moment}'})"
            for line in auditor.lines
            if not line.startswith("saw ")
        ]

    def audit(self, tell: Callable[[str], object]) -> None:
        """What another child does: look at what is left, and go on with it."""
        asyncio.run(self._audit(tell))

    async def _audit(self, tell: Callable[[str], object]) -> None:
        store = open_store(self.store)
        events = [entry.event for entry in await store.read("s")]
        shown = [decode_event(line.encode()) for line in self.told]
        acknowledged = [encode_event(each) for each in shown if each.durable]
        if acknowledged != [encode_event(each) for each in events[: len(acknowledged)]]:
            tell("something that was told is not in the log")
        state = fold_entries(events_as_entries(events))
        assert_valid(state.messages)
        ending = state.run_ended_event.status if state.run_ended_event else "waiting" if state.is_waiting else ""
        tell(f"saw {ending}")
        if ending not in {"waiting", "done"}:
            tell(f"the run ended with {ending!r}")
        for problem in self._effects(events):
            tell(problem)
        await store.release(await store.acquire("s"))  # nobody has it
        if ending == "waiting":
            await self._go_on(store, tell)
        outcome = await Agent(ScriptedModel("Here I am."), store=store).session("s").run("Are you there?")
        if outcome.status != "done":
            tell(f"the session cannot be gone on with: {outcome.status} {outcome.reason}")
        await store.aclose()

    async def _go_on(self, store: Store, tell: Callable[[str], object]) -> None:
        """Resume the run, as the next process does; then everything was done, and once."""
        outcome = await Agent(Model(""), tools=tools(self.ledger), store=store).session("s").resume()
        if outcome.status != "done":
            tell(f"the run cannot be resumed: {outcome.status} {outcome.reason}")
        events = [entry.event for entry in await store.read("s")]
        for problem in self._effects(events):
            tell(f"after the run was resumed, {problem}")
        if len(done := self._done()) != 2 * TURNS:
            tell(f"after the run was resumed, {len(done)} effects of {2 * TURNS} have happened")

    def _effects(self, events: list[Event]) -> list[str]:
        """What is wrong with what tools did: each effect once, each intended, each one that is told of there."""
        done = self._done()
        intended = {each.idempotency_key for each in events if isinstance(each, ToolStarted)}
        results = [each.result for each in events if isinstance(each, ToolFinished)]
        problems = [f"{each} was done {count} times" for each, count in Counter(done).items() if count > 1]
        problems += [f"{each} was done without an intent" for each in set(done) - intended]
        succeeded = {each.call_id for each in results if each.status is Status.OK}
        problems += [f"{each} was not done" for each in succeeded if not any(key.endswith(each) for key in done)]
        cut = [each.call_id for each in results if each.status in {Status.CANCELLED, Status.UNKNOWN}]
        return problems + [f"{each} was not given its time" for each in cut]

    def _done(self) -> list[str]:
        """The effects that have happened."""
        if not os.path.exists(self.ledger):  # noqa: PTH110 - a path of ours
            return []
        with open(self.ledger, encoding="utf-8") as file:  # noqa: PTH123 - a path of ours
            return file.read().split()


def events_as_entries(events: list[Event]):
    """As `fold_entries` takes them."""
    from perdure.events import Entry

    return [Entry(seq, 0.0, event) for seq, event in enumerate(events, 1)]


def tools(ledger: str):
    """Tools that note each effect outside."""

    async def note(context: ToolContext, seconds: float) -> str:
        await asyncio.sleep(seconds)
        file = os.open(ledger, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(file, f"{context.idempotency_key}\n".encode())
        os.close(file)
        await asyncio.sleep(seconds)
        return "noted"

    @tool
    async def mark(context: ToolContext) -> str:
        """Quick."""
        return await note(context, QUICK_SECONDS)

    @tool
    async def slow(context: ToolContext) -> str:
        """Slow."""
        return await note(context, SLOW_SECONDS)

    return [mark, slow]


def main(folder: str, wanted: int, seed: str) -> Findings:
    """One trial after the other, until so many runs were ended in the middle or something is wrong."""
    findings = Findings()
    register("busy", Model)
    importlib.import_module("perdure._stores.sqlite.write.scheduler")  # what each child would load by itself
    bell = Bell()
    for number in range(MOST_TRIALS_FOR_ONE * wanted):
        with nursery(bell) as children:
            Trial(folder, number, random.Random(f"{seed} {number}")).carry_out(children, findings)
        enough = findings.seen.get("saw waiting", 0) >= wanted
        if enough or findings.wrong or findings.slowest_seconds > MOST_SECONDS:
            break
    return findings


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(main(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
