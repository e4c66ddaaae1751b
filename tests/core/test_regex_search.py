"""Patterns are searched within a time limit, in a process that is killed when it is over."""

import os
import re

import pytest

from perdure._core.tools.worker.process import WORKERS, ToolWorkerProcess, search_within_time

HOSTILE = "a" * 60 + "!"
"""A text on which `(a+)+$` takes longer than anybody lives."""


@pytest.fixture(autouse=True)
def _no_worker_is_left():
    yield
    WORKERS.close()


def search(pattern, text, seconds=60.0) -> bool:
    return search_within_time(re.compile(pattern), text, seconds)


def test_a_pattern_is_found_or_not_in_another_process_that_is_used_again(monkeypatch):
    assert search(r"\d+ days", "in 12 days")
    monkeypatch.setattr(ToolWorkerProcess, "_spawn", None)  # no other process is started
    assert not search(r"^\d+", "in 12 days")
    assert search(re.compile("DAYS|weeks", re.IGNORECASE), "in 12 days")


def test_a_search_that_takes_too_long_is_ended_and_the_next_gets_another_process():
    with pytest.raises(TimeoutError, match=r"the search took longer than 0\.2 seconds, and was ended"):
        search("(a+)+$", HOSTILE, 0.2)
    assert search("(a+)+$", "aaa", float("inf"))


def test_a_pattern_without_repetitions_and_alternatives_needs_no_process(monkeypatch):
    monkeypatch.setattr(WORKERS, "take", None)
    assert search("^[A-Z]ar.s", "Paris")
    assert not search("^[a-z]", "Paris")


def test_a_system_without_process_groups_searches_here(monkeypatch):
    monkeypatch.setattr(WORKERS, "take", None)
    monkeypatch.delattr(os, "fork")
    assert search("a+", "baa")


def test_errors_of_the_other_process_are_raised(monkeypatch):
    with pytest.raises(TypeError, match="expected string or bytes-like object"):
        search("a+", None)
    dead = ToolWorkerProcess()
    dead.kill()
    monkeypatch.setattr(WORKERS, "take", lambda: dead)
    with pytest.raises(EOFError):
        search("a+", "a")
