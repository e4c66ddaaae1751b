"""Options of one run: what is refused, what the log has of them, and what a run that is resumed gets back."""

from typing import Any

import pytest

from perdure import Agent, Budget, ConfigError, Image, Limits, Message, Settings, Text, UsageError, assistant, user
from perdure._runtime.agent.overrides import (
    check_cancel_mode,
    check_overrides,
    encode_overrides,
    is_conversation,
    restore_overrides,
    to_user_message,
)
from perdure.engines import react
from perdure.testing import ScriptedModel

NAMES = (
    "model, role, instructions, tools, limits, settings, permission, narrow_permission, engine, deps, budget, watchers"
)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limit": 3}, f"a run has no override 'limit': did you mean 'limits'? use one of {NAMES}"),
        ({"xyz": 3}, f"a run has no override 'xyz': use one of {NAMES}"),
        ({"instructions": 3}, "instructions=3 cannot be used for a run: give a str"),
        ({"role": 3}, "role=3 cannot be used for a run: give a str"),
        ({"limits": {}}, "limits={} cannot be used for a run: give a Limits"),
        ({"settings": None}, "settings=None cannot be used for a run: give a Settings"),
        ({"budget": 3}, "budget=3 cannot be used for a run: give a Budget(…)"),
        ({"engine": 3}, "engine=3 cannot be used for a run: give a function"),
        ({"engine": None}, "engine=None cannot be used for a run: give a function"),
        ({"permission": 3}, "permission=3 cannot be used for a run: give a function"),
        ({"narrow_permission": 0}, "narrow_permission=0 cannot be used for a run: give a bool"),
    ],
)
def test_an_override_that_cannot_be_used_is_named(given: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_overrides(given)
    assert str(error.value) == message


@pytest.mark.parametrize("given", [{"watchers": 3}, {"watchers": [3]}, {"engine": "nonsense"}])
def test_watchers_have_to_be_functions_and_an_engine_has_to_be_known(given: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(given)).removesuffix("s")):
        check_overrides(given)


def test_what_can_be_used_is_accepted() -> None:
    given: Any = {"permission": None, "budget": None, "engine": "react", "watchers": [print], "deps": 3, "role": "x"}
    check_overrides(given)
    other: Any = {"permission": print, "budget": Budget(token_budget=5), "engine": react, "output": None}
    check_overrides(other)


def test_data_is_stored_in_the_log_and_of_code_the_name_alone() -> None:
    assert encode_overrides({}) == {}
    data: Any = {
        "instructions": "Be brief.",
        "role": "critic",
        "limits": Limits(max_turns=3),
        "settings": Settings(temperature=0.5),
        "model": "demo",
        "engine": "react",
        "narrow_permission": False,
    }
    watched: Any = {**data, "watchers": [print]}
    kept = encode_overrides(watched)
    assert list(kept) == ["instructions", "role", "limits", "settings", "model", "engine", "narrow_permission"]
    assert restore_overrides(kept, {}) == data
    code: Any = {"tools": [], "deps": 3, "engine": react, "model": object(), "role": "critic", "watchers": []}
    assert encode_overrides(code) == {"role": "critic", "code": ["deps", "engine", "model", "tools"]}


def test_code_has_to_be_given_again() -> None:
    with pytest.raises(UsageError) as error:
        restore_overrides({"code": ["budget", "deps", "tools"]}, {"deps": 3})
    assert str(error.value) == (
        "this run was begun with code, which a log cannot store: pass budget=…, tools=… again to the call that "
        "continues it (run, resume, wake, attend or attend_all)"
    )
    assert restore_overrides({"role": "x", "code": ["deps"]}, {"deps": 3}) == {"role": "x"}


@pytest.mark.parametrize("mode", ["now", "after_tools", "after_turn"])
def test_a_cancel_mode_is_one_of_three(mode: Any) -> None:
    check_cancel_mode(mode)
    with pytest.raises(ConfigError) as error:
        check_cancel_mode(f"{mode}!")  # type: ignore[arg-type]
    assert str(error.value) == f"cancel mode '{mode}!' is not known: use 'now', 'after_tools' or 'after_turn'"


def test_a_list_with_a_message_is_a_conversation() -> None:
    assert [is_conversation(each) for each in ([user("a")], (user("a"), "b"))] == [True, True]
    assert [is_conversation(each) for each in ("a", user("a"), ["a"], [], Text("a"), None)] == [False] * 6


def test_a_prompt_becomes_a_message_of_the_user_as_it_was_given() -> None:
    picture = Image(data=b"x", media_type="image/png")
    assert to_user_message("Hi\ud800", "steer") == Message("user", (Text("Hi\ufffd"),), "steer")
    assert to_user_message(["Hi", picture], "steer") == Message("user", (Text("Hi"), picture), "steer")
    assert to_user_message(user("Hi", metadata={"a": 1}), "steer") == Message(
        "user", (Text("Hi"),), "steer", metadata={"a": 1}
    )
    assert to_user_message(user("Hi", origin="mine"), "steer").origin == "mine"


EMPTY = "the prompt is empty: give some text, or a part such as Image(…)"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", EMPTY),
        (" \n", EMPTY),
        (["", " "], EMPTY),
        (user(" "), EMPTY),
        (assistant("Hi"), "a message with role 'assistant' cannot be sent to an agent: only 'user' messages can"),
        ([], "[] cannot be sent to an agent: give text, a part such as Image(…), or a list of them"),
    ],
    ids=str,
)
def test_a_prompt_that_says_nothing_is_refused(prompt: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        to_user_message(prompt)
    assert str(error.value) == message


@pytest.mark.parametrize("way", ["run", "stream", "resume", "resume_stream", "wake"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limit": 3}, f"a run has no override 'limit': did you mean 'limits'? use one of {NAMES}"),
        ({"role": 5}, "role=5 cannot be used for a run: give a str"),
    ],
)
async def test_an_override_that_cannot_be_used_is_refused_by_whatever_begins_a_run(
    way: str, given: Any, message: str
) -> None:
    session = Agent(ScriptedModel("Never said.")).session("s")
    await session.follow_up("Are you there?")
    begin: Any = getattr(session, way)

    async def begin_run() -> None:
        begun = begin(*(["Go"] if way in {"run", "stream"} else []), **given)
        await (begun.outcome() if "stream" in way else begun)

    with pytest.raises(ConfigError) as error:
        await begin_run()
    assert str(error.value) == message
    assert await session.store.read("s") == []
