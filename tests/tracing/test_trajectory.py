import pytest

from tests.tracing.sample_traces import coding_session


def test_each_step_pairs_the_action_with_its_observations():
    steps = [step for step in coding_session().live().trajectory() if not step.path]
    first = steps[0]
    assert first.assistant is not None
    assert first.assistant.text == "I'll run the test first."
    assert [item.reason for item in first.injected] == ["prompt"]
    (shell,) = first.tools
    assert (shell.name, shell.is_error, shell.duration_seconds) == ("bash", True, 2.4)
    assert shell.result.endswith("1 failed, 41 passed")
    assert first.duration_seconds == pytest.approx(7.1)
    assert (steps[1].injected, len(steps[1].tools), steps[1].tools[0].is_error) == ((), 2, False)


def test_subagents_are_in_the_order_of_their_requests():
    assert [(step.path, step.turn) for step in coding_session().live().trajectory()][:4] == [
        ("", 1),
        ("", 2),
        ("historian", 1),
        ("historian", 2),
    ]


def test_a_trajectory_can_be_printed():
    text = coding_session().live().format_trajectory()
    assert "  [prompt] The test of the parser fails" in text
    assert "    error: FAILED tests/test_parser.py" in text
