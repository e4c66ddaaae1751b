# Written by `python -m scripts.exports`, from the table in engines.py. Not edited by hand.

from ._core.log.fold import State as State
from ._core.log.fold import fold_entries as fold_entries
from ._core.log.status import find_last_run_progress as find_last_run_progress
from ._core.people.mailbox import Mailbox as Mailbox
from ._core.run.answers import FallbackAnswer as FallbackAnswer
from ._core.run.answers import FallbackFinder as FallbackFinder
from ._core.run.answers import add_fallback_answer as add_fallback_answer
from ._core.run.answers import auto_continue as auto_continue
from ._core.run.loop import act as act
from ._core.run.loop import execute as execute
from ._core.run.loop import handle_answer as handle_answer
from ._core.run.loop import handle_tool_calls as handle_tool_calls
from ._core.run.loop import react as react
from ._core.run.loop import run_turn as run_turn
from ._core.run.run import Run as Run
from ._core.run.spec import Accepted as Accepted
from ._core.run.spec import BetweenTurns as BetweenTurns
from ._core.run.spec import CancelMode as CancelMode
from ._core.run.spec import DecisionSealer as DecisionSealer
from ._core.run.spec import Engine as Engine
from ._core.run.spec import HistoryProcessor as HistoryProcessor
from ._core.run.spec import OutputValidator as OutputValidator
from ._core.run.spec import PrivateRunBuilder as PrivateRunBuilder
from ._core.run.spec import PrivateRunTask as PrivateRunTask
from ._core.run.spec import Reminder as Reminder
from ._core.run.spec import RunPlace as RunPlace
from ._core.run.spec import RunSpec as RunSpec
from ._core.run.spec import ToolCaller as ToolCaller
from ._core.run.spec import ToolSelector as ToolSelector
from ._core.run.spec import TurnWrapper as TurnWrapper
from ._core.run.stop import Guardrail as Guardrail
from ._core.run.stop import Halt as Halt
from ._core.run.stop import Nudge as Nudge
from ._core.run.stop import Step as Step
from ._core.run.stop import StopCondition as StopCondition
from ._core.run.stop import all_of as all_of
from ._core.run.stop import any_of as any_of
from ._core.run.stop import max_turns as max_turns
from ._core.run.stop import mistakes as mistakes
from ._core.run.stop import none_of as none_of
from ._core.run.stop import repeated_calls as repeated_calls
from ._core.run.stop import when_tool_called as when_tool_called
from ._core.values.clock import SYSTEM_CLOCK as SYSTEM_CLOCK
from ._engines.autonomous import autonomous as autonomous
from ._engines.chain_of_thought import chain_of_thought as chain_of_thought
from ._engines.passthrough import passthrough as passthrough
from ._engines.planner import planner as planner
from ._engines.private_run import EngineRunStopped as EngineRunStopped
from ._engines.private_run import PrivateRunResult as PrivateRunResult
from ._engines.private_run import deliver_and_compact as deliver_and_compact
from ._engines.private_run import run_privately as run_privately
from ._engines.reflect import reflect as reflect
from ._engines.registry import EngineFactory as EngineFactory
from ._engines.registry import list_engine_names as list_engine_names
from ._engines.registry import open_engine as open_engine
from ._engines.registry import register_engine as register_engine
from ._work.goals.until import read_grades as read_grades
from ._work.goals.until import until as until

__all__ = [
    "SYSTEM_CLOCK",
    "Accepted",
    "BetweenTurns",
    "CancelMode",
    "DecisionSealer",
    "Engine",
    "EngineFactory",
    "EngineRunStopped",
    "FallbackAnswer",
    "FallbackFinder",
    "Guardrail",
    "Halt",
    "HistoryProcessor",
    "Mailbox",
    "Nudge",
    "OutputValidator",
    "PrivateRunBuilder",
    "PrivateRunResult",
    "PrivateRunTask",
    "Reminder",
    "Run",
    "RunPlace",
    "RunSpec",
    "State",
    "Step",
    "StopCondition",
    "ToolCaller",
    "ToolSelector",
    "TurnWrapper",
    "act",
    "add_fallback_answer",
    "all_of",
    "any_of",
    "auto_continue",
    "autonomous",
    "chain_of_thought",
    "deliver_and_compact",
    "execute",
    "find_last_run_progress",
    "fold_entries",
    "handle_answer",
    "handle_tool_calls",
    "list_engine_names",
    "max_turns",
    "mistakes",
    "none_of",
    "open_engine",
    "passthrough",
    "planner",
    "react",
    "read_grades",
    "reflect",
    "register_engine",
    "repeated_calls",
    "run_privately",
    "run_turn",
    "until",
    "when_tool_called",
]
