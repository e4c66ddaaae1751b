"""Options of commands: what a prompt stores of them, and what a session that goes on takes from its last run."""

import os
from typing import Any

import pytest
from msgspec.structs import asdict

from perdure import Message, assistant, user
from perdure._cli.run.options import AgentOptions, RunCommandOptions, fill_missing_options, is_last_run_from_cli
from perdure._core.log.fold import fold_events
from perdure.engines import State
from perdure.events import Event, MessageAdded, RunEnded, RunStarted


def state_of(*runs: list[Message], model: str | None = None) -> State:
    """Return the state of a session with runs of these messages, of which the last has not ended."""
    events: list[Event] = []
    for number, messages in enumerate(runs):
        run_id = f"r{number}"
        options = {} if model is None else {"model": model}
        events += [RunStarted(agent="a", run_id=run_id, options=options)]
        events += [MessageAdded(each, run_id=run_id) for each in messages]
        events += [RunEnded("done", run_id=run_id)] if number < len(runs) - 1 else []
    return fold_events(events)


def prompt(text: str = "Go.", **stored: Any) -> Message:
    return user(text, metadata={"command_line": stored})


def test_a_prompt_stores_what_the_log_does_not_store_elsewhere() -> None:
    assert AgentOptions(model="m", store="s", allow=("x",)).build_prompt_metadata() == {"command_line": {}}
    given = AgentOptions(context=False, coding=True, config="perdure.toml", no_config=True)
    assert given.build_prompt_metadata("/p") == {
        "command_line": {
            "context": False,
            "coding": True,
            "config": os.path.abspath("perdure.toml"),  # noqa: PTH100 - as it is stored
            "no_config": True,
            "project": "/p",
        }
    }


def test_limits_that_were_given_are_listed_by_their_names() -> None:
    assert RunCommandOptions().list_limits() == {}
    given = RunCommandOptions(
        max_turns=0, limit_tokens=2, limit_cost=0.0, limit_seconds=4.5, limit_tool_calls=5, tools=()
    )
    assert given.list_limits() == {
        "max_turns": 0, "token_budget": 2, "max_cost_usd": 0.0, "timeout_seconds": 4.5, "max_tool_calls": 5,
        "allowed_tools": (),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "stored", "filled"),
    [
        (AgentOptions(), {}, AgentOptions(model="m", previous_model="m")),
        (AgentOptions(model="other"), {}, AgentOptions(model="other", previous_model="m")),
        (
            AgentOptions(),
            {"context": False, "coding": True, "config": "/c"},
            AgentOptions(model="m", previous_model="m", context=False, coding=True, config="/c"),
        ),
        (
            AgentOptions(context=True, coding=False, config="/d"),
            {"context": False, "coding": True, "config": "/c"},
            AgentOptions(model="m", previous_model="m", context=True, coding=False, config="/d"),
        ),
        (AgentOptions(), {"no_config": True}, AgentOptions(model="m", previous_model="m", no_config=True)),
        (AgentOptions(config="/d"), {"no_config": True}, AgentOptions(model="m", previous_model="m", config="/d")),
        (AgentOptions(no_config=True), {"config": "/c"}, AgentOptions(model="m", previous_model="m", no_config=True)),
        (AgentOptions(role="r"), {"context": "odd"}, AgentOptions(role="r", model="m", previous_model="m")),
    ],
)
def test_what_is_not_given_is_taken_from_the_last_run(
    given: AgentOptions, stored: dict[str, Any], filled: AgentOptions
) -> None:
    assert fill_missing_options(given, state_of([prompt(**stored)], model="m")) == filled


def test_a_session_without_a_run_fills_in_nothing() -> None:
    assert fill_missing_options(AgentOptions(coding=True), fold_events([])) == AgentOptions(coding=True)
    assert fill_missing_options(AgentOptions(), state_of([user("Go.")])) == AgentOptions()
    assert not is_last_run_from_cli(fold_events([]))


POSTED = user("Posted.", origin="inbox")


@pytest.mark.parametrize(
    ("runs", "is_ours", "coding"),
    [
        ([[prompt(coding=True)]], True, True),
        ([[user("Go.")]], False, None),
        ([[user("Go.")], [prompt(coding=True)]], True, True),
        ([[prompt(coding=True)], [user("Go.")]], False, None),
        ([[prompt(coding=True)], [prompt(coding=False)]], True, False),
        ([[prompt(coding=True), assistant("Done.")], []], True, True),
        ([[prompt(coding=True), assistant("Done.")], [POSTED, prompt(coding=False)]], True, True),
        ([[prompt(coding=False)], [prompt(coding=True)], [user("Faster.", origin="steering")]], True, True),
        ([[prompt(coding=True)], [user("Next.", origin="follow_up")]], True, True),
        ([[prompt(coding=True)], [user("Reminder.", origin="other"), prompt(coding=False)]], True, False),
        ([[prompt(coding=True)], [user("Reminder.", origin="other")]], False, None),
        ([[POSTED]], False, None),
    ],
)
def test_a_run_belongs_to_its_prompt_or_to_the_last_one_before_it(
    runs: list[list[Message]], is_ours: bool, coding: bool | None
) -> None:
    state = state_of(*runs)
    assert is_last_run_from_cli(state) == is_ours
    assert fill_missing_options(AgentOptions(), state).coding is coding


def test_a_command_without_options_allows_resumes_and_hides_nothing() -> None:
    given = {name: each for name, each in asdict(RunCommandOptions()).items() if each not in (None, False)}
    assert given == {"agent": AgentOptions()}


@pytest.mark.parametrize("recorded", [[[]], {"a": 1}, 3, True])
def test_a_model_that_is_no_name_is_not_taken_from_a_log(recorded: Any) -> None:
    filled = fill_missing_options(AgentOptions(), state_of([prompt()], model=recorded))
    assert (filled.model, filled.previous_model) == (None, "")
