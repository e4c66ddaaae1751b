"""The errors: what they are, what the command line makes of them, and what they carry."""

import copy
import pickle
import re

import pytest

from perdure import (
    AllModelsFailed,
    ConfigError,
    ModelError,
    PerdureError,
    ProviderDown,
    RateLimited,
    SessionBusy,
    ToolError,
    UsageError,
)
from perdure._core.values import error

ERRORS = [value for value in vars(error).values() if isinstance(value, type) and issubclass(value, PerdureError)]
TREE = re.findall(r"^([│├└ ]*)(\w+)", str(error.__doc__).partition("\n\n")[2], re.MULTILINE)
"""The branches before each name, and the name."""
RETRYABLE = {
    "Conflict",
    "EmptyReply",
    "EffectNotStarted",
    "ProviderDown",
    "RateLimited",
    "ReplyCutOff",
    "SessionBusy",
    "ShuttingDown",
}


def test_every_error_is_a_perdure_error_and_drawn_in_the_tree():
    assert [value for value in vars(error).values() if isinstance(value, type)] == ERRORS
    assert [name for _, name in TREE] == [kind.__name__ for kind in ERRORS]


def test_the_tree_draws_each_error_under_its_parent():
    above = ["Exception"]
    for branches, name in TREE:
        del above[1 + len(branches) // 2 :]
        assert getattr(error, name).__bases__[0].__name__ == above[-1]
        above.append(name)


def test_an_error_says_whether_trying_again_may_help():
    assert {kind.__name__ for kind in ERRORS if kind.retryable} == RETRYABLE


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_has_an_exit_code_that_is_not_success(kind):
    assert 0 < kind.exit_code < 128


def test_the_exit_codes_that_scripts_rely_on_stay_as_they_are():
    own = {kind.__name__: kind.exit_code for kind in ERRORS if "exit_code" in vars(kind)}
    assert own == {
        "PerdureError": 1,
        "ConfigError": 2,
        "UsageError": 2,
        "SessionBusy": 75,
        "ShuttingDown": 75,
        "ModelError": 69,
        "StoreError": 74,
        "SessionNotFound": 66,
        "SessionExists": 73,
        "UnsupportedByStore": 69,
    }


def test_what_is_described_wrongly_is_a_value_error_and_what_comes_at_the_wrong_time_a_runtime_error():
    assert issubclass(ConfigError, ValueError)
    assert issubclass(UsageError, RuntimeError)
    assert issubclass(SessionBusy, UsageError)
    assert issubclass(error.EffectNotStarted, ToolError)


def test_a_model_error_carries_how_long_the_provider_asked_to_wait():
    assert RateLimited("slow down", retry_after_seconds=7.5).retry_after_seconds == 7.5
    assert ModelError("no").retry_after_seconds is None


def test_the_error_of_a_failover_has_every_attempt():
    attempts = (("a", RateLimited("slow down")), ("b", ProviderDown("gone")))
    failed = AllModelsFailed(attempts)
    assert str(failed) == "all 2 models failed: a: RateLimited: slow down; b: ProviderDown: gone"
    assert failed.attempts == attempts


@pytest.mark.parametrize("again", [copy.copy, lambda value: pickle.loads(pickle.dumps(value))], ids=["copy", "pickle"])
def test_errors_can_be_copied_and_sent_to_another_process(again):
    waiting = again(RateLimited("slow down", retry_after_seconds=7.5))
    assert (str(waiting), waiting.retry_after_seconds) == ("slow down", 7.5)
    failed = again(AllModelsFailed((("a", ProviderDown("gone")),)))
    assert str(failed) == "all 1 models failed: a: ProviderDown: gone"
    assert [(name, str(reason)) for name, reason in failed.attempts] == [("a", "gone")]
    layer = again(error.MiddlewareFailed("audit", "around a run: OSError: gone"))
    assert (str(layer), layer.name) == ("the middleware 'audit' failed around a run: OSError: gone", "audit")


@pytest.mark.parametrize(
    ("made", "text", "fields"),
    [
        (
            error.LimitExceeded("max_turns"),
            "the run has reached its limit max_turns: it cannot ask the model again",
            {"limit": "max_turns"},
        ),
        (error.ContextOverflow("too long"), "too long", {"window_tokens": None, "retry_after_seconds": None}),
        (error.ContextOverflow("too long", window_tokens=8_000), "too long", {"window_tokens": 8_000}),
        (
            error.MiddlewareFailed("audit", "before a turn: no disk"),
            "the middleware 'audit' failed before a turn: no disk",
            {"name": "audit", "problem": "before a turn: no disk"},
        ),
        (
            AllModelsFailed((("a", ProviderDown("gone")), ("b", ValueError("odd")))),
            "all 2 models failed: a: ProviderDown: gone; b: ValueError: odd",
            {},
        ),
    ],
)
def test_an_error_says_what_it_carries(made, text, fields):
    assert str(made) == text
    assert {name: getattr(made, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("made", "transient"),
    [
        (ProviderDown("gone"), True),
        (RateLimited("slow"), True),
        (ModelError("odd"), False),
        (ToolError("odd"), False),
        (ConnectionResetError("gone"), True),
        (TimeoutError("late"), True),
        (OSError("odd"), False),
        (ValueError("odd"), False),
    ],
)
def test_errors_of_a_broken_connection_are_transient_whoever_raises_them(made, transient):
    assert error.is_transient(made) is transient
