"""Schedules: the prompt of a firing, its session, and how late it may begin."""

import pytest

from perdure import ConfigError
from perdure.background import Schedule, at, every


@pytest.mark.parametrize(
    ("schedule", "given", "prompt"),
    [
        (Schedule(name="a", prompt="Go."), None, "Go."),
        (Schedule(name="a", prompt="Go."), {"n": 1}, 'Go.\n\n{"n":1}'),
        (Schedule(name="a", prompt="Go."), "", "Go."),
        (Schedule(name="a"), "Hello", "Hello"),
        (Schedule(name="a", skill="news"), None, "/news"),
        (Schedule(name="a", skill="news"), "today", "/news today"),
    ],
)
def test_the_prompt_of_a_firing_has_the_input_of_its_trigger(schedule, given, prompt):
    assert schedule.build_prompt(given) == prompt


def test_a_firing_runs_in_the_session_of_its_schedule_or_in_one_of_its_own():
    assert Schedule(name="a").choose_session("f1") == "a"
    assert Schedule(name="a", session="s").choose_session("f1") == "s"
    assert Schedule(name="a", session="s", new_session=True).choose_session("f1") == "s-f1"


def test_a_firing_may_be_a_minute_late_a_moment_any_time_and_either_what_was_given():
    moment = at("2026-11-18T09:00+01:00")
    assert Schedule(name="a", prompt="x", when=every(hours=1)).longest_delay_seconds == 60
    assert Schedule(name="a", prompt="x", when=moment).longest_delay_seconds is None
    assert Schedule(name="a", prompt="x", when=moment, late_seconds=5).longest_delay_seconds == 5
    assert Schedule(name="a", prompt="x", when=every(hours=1), late_seconds=0).longest_delay_seconds == 0


def test_the_number_of_retries_is_limited():
    assert Schedule(name="a", retries=100).retries == 100
    with pytest.raises(ConfigError, match="at most 100"):
        Schedule(name="a", retries=101)
