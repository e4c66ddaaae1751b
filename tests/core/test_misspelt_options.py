"""Structs that programs build from keyword arguments: what they refuse says which class, and what was meant."""

from typing import Any

import pytest
from msgspec import Struct, convert
from msgspec.structs import replace

from perdure import (
    Agent,
    Compaction,
    ConfigError,
    Extension,
    Limits,
    Middleware,
    Price,
    Role,
    Settings,
    Skill,
    Verdict,
)
from perdure.core.misspelt_options import OptionClass
from perdure.testing import ScriptedModel


@pytest.mark.parametrize(
    ("build", "option", "meant"),
    [
        (Agent, "toolz", "tools"),
        (Agent, "Instructions", "instructions"),
        (Limits, "max_turn", "max_turns"),
        (Settings, "max_tokens", "max_output_tokens"),
        (Verdict, "allowed", "allow"),
        (Compaction, "keep_recent_token", "keep_recent_tokens"),
        (Extension, "tool", "tools"),
        (Middleware, "turns", "turn"),
        (Price, "inputs", "input_usd"),
        (Role, "instruction", "instructions"),
        (Skill, "discription", "description"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_class_and_the_option_that_was_meant(build, option, meant):
    given = [ScriptedModel()] if build is Agent else []
    with pytest.raises(ConfigError) as refused:
        build(*given, **{option: 1})
    name = build.__name__
    assert str(refused.value) == f"{name}({option}=…): there is no option {option!r}: did you mean {meant!r}?"


def test_an_option_that_is_like_no_other_is_refused_with_the_options_there_are():
    options: Any = {"colour": "red"}
    with pytest.raises(ConfigError, match=r"^Limits\(colour=…\): .* 'colour': its options are max_turns, "):
        Limits(**options)


def test_a_missing_option_and_one_without_its_name_are_refused_with_the_options_there_are():
    build: Any = Agent
    with pytest.raises(ConfigError, match=r"Agent\(…\): Missing required argument 'model'; its options are model, "):
        build()
    with pytest.raises(ConfigError, match=r"Agent\(…\): Extra positional arguments provided; its options are "):
        build("demo", [])


class Part(Struct, frozen=True, metaclass=OptionClass):
    """A part whose own check fails."""

    number: int = 0

    def __post_init__(self) -> None:
        if self.number > 1:
            raise TypeError("more than one")


def test_errors_of_checks_and_everything_else_stay_as_they_are():
    with pytest.raises(TypeError, match="more than one"):
        Part(number=2)
    assert replace(Part(1), number=0) == convert({}, Part) == Part()
