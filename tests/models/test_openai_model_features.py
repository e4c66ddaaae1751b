"""What OpenAI's models refuse is told by their names, at any provider and with any date."""

import pytest

from perdure import Settings
from perdure._models.wires.openai_features import get_openai_model_features


@pytest.mark.parametrize(
    ("names", "sampling", "thinks_with_tools"),
    [
        ("gpt-4o gpt-4.1-mini gpt-3.5-turbo gpt-35-turbo gpt-41 gpt-oss-120b Kimi-K2.5 prod", "always", True),
        ("gpt-5-chat-latest gpt-5.1-chat-latest chat-latest chatgpt-4o-latest", "always", True),
        ("gpt-5.1 gpt-5.1-2025-11-13 gpt-5.2 gpt-5-2 openai/gpt-5.2", "unless_thinking", True),
        ("gpt-5.4 gpt-5.4-mini gpt-5.4-2026-03-05", "unless_thinking", False),
        (
            "gpt-5 gpt-5-mini gpt-5-2025-08-07 gpt-5-codex gpt-5.2-codex gpt-5.2-pro o3 o4-mini codex-mini",
            "never",
            True,
        ),
        ("gpt-5.4-pro gpt-5.5 gpt-5.6-terra gpt-5.6-2026-07-01 gpt-5.10 GPT-6.1-sol gpt-9", "never", False),
    ],
)
def test_a_name_tells_what_a_model_refuses(names: str, sampling: str, thinks_with_tools: bool):
    for name in names.split():
        found = get_openai_model_features(name)
        assert (found.sampling, found.thinks_with_tools) == (sampling, thinks_with_tools), name


def test_a_model_that_takes_a_temperature_unless_it_thinks_thinks_only_if_asked():
    model = get_openai_model_features("gpt-5.2")
    accepted = [model.accepts_sampling(Settings(reasoning_effort=effort)) for effort in (None, "none", "low", "high")]
    assert accepted == [True, True, False, False]
