"""Engines, which decide how turns and tool calls follow each other: for users, and for authors of their own."""

from ._facade import export

NAMES_BY_MODULE = {
    "._core.log.fold": ("State", "fold_entries"),
    "._core.log.status": ("find_last_run_progress",),
    "._core.people.mailbox": ("Mailbox",),
    "._core.run.answers": ("FallbackAnswer", "FallbackFinder", "add_fallback_answer", "auto_continue"),
    "._core.run.loop": ("act", "execute", "handle_answer", "handle_tool_calls", "react", "run_turn"),
    "._core.run.run": ("Run",),
    "._core.run.spec": (
        "Accepted",
        "BetweenTurns",
        "CancelMode",
        "DecisionSealer",
        "Engine",
        "HistoryProcessor",
        "OutputValidator",
        "PrivateRunBuilder",
        "PrivateRunTask",
        "Reminder",
        "RunPlace",
        "RunSpec",
        "ToolCaller",
        "ToolSelector",
        "TurnWrapper",
    ),
    "._core.run.stop": (
        "Guardrail",
        "Halt",
        "Nudge",
        "Step",
        "StopCondition",
        "all_of",
        "any_of",
        "max_turns",
        "mistakes",
        "none_of",
        "repeated_calls",
        "when_tool_called",
    ),
    "._core.values.clock": ("SYSTEM_CLOCK",),
    "._engines.autonomous": ("autonomous",),
    "._engines.chain_of_thought": ("chain_of_thought",),
    "._engines.passthrough": ("passthrough",),
    "._engines.planner": ("planner",),
    "._engines.private_run": ("EngineRunStopped", "PrivateRunResult", "deliver_and_compact", "run_privately"),
    "._engines.reflect": ("reflect",),
    "._engines.registry": ("EngineFactory", "list_engine_names", "open_engine", "register_engine"),
    "._work.goals.until": ("read_grades", "until"),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
