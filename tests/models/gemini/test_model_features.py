"""What is read from the name of a model."""

import pytest

from perdure import Settings
from perdure._models.wires.gemini.features import (
    can_combine_schema_and_tools,
    encode_thinking,
    is_signature_required,
    parse_model_version,
)


@pytest.mark.parametrize(
    ("model", "version"),
    [
        ("gemini-2.5-flash", (2, 5)),
        ("gemini-3-pro-preview", (3, 0)),
        ("models/gemini-3.1-pro-preview", (3, 1)),
        ("gemini-1.5-flash-8b", (1, 5)),
        ("gemini-flash-latest", (99, 0)),
        ("gemini-exp-1206", (0, 0)),
        ("gemma-3-27b-it", (0, 0)),
    ],
)
def test_the_version_is_in_the_name(model, version):
    assert parse_model_version(model) == version


def test_from_the_third_generation_on_calls_are_signed_and_schemas_go_with_tools():
    assert [is_signature_required(model) for model in ("gemini-2.5-pro", "gemini-3-flash", "gemini-4-argon")] == [
        0,
        1,
        1,
    ]
    assert [can_combine_schema_and_tools(model) for model in ("gemini-2.5-pro", "gemini-3-flash")] == [0, 1]


@pytest.mark.parametrize(
    ("settings", "model", "told"),
    [
        (Settings(), "gemini-2.5-flash", {}),
        (Settings(reasoning_effort="low"), "gemini-2.0-flash", {}),
        (Settings(reasoning_effort="low"), "gemma-3-27b-it", {}),
        (Settings(thinking="on"), "gemini-2.5-flash", {"includeThoughts": True}),
        (Settings(thinking="off"), "gemini-2.5-flash", {"includeThoughts": False, "thinkingBudget": 0}),
        (Settings(reasoning_effort="none"), "gemini-2.5-pro", {"includeThoughts": False, "thinkingBudget": 128}),
        (Settings(reasoning_effort="high"), "gemini-2.5-pro", {"includeThoughts": True, "thinkingBudget": 24_576}),
        (Settings(reasoning_effort="medium"), "gemini-3.5-flash", {"includeThoughts": True, "thinkingLevel": "medium"}),
        (Settings(reasoning_effort="none"), "gemini-3.5-flash", {"includeThoughts": False, "thinkingLevel": "minimal"}),
        (Settings(reasoning_effort="minimal"), "gemini-3-pro", {"includeThoughts": True, "thinkingLevel": "low"}),
        (
            Settings(reasoning_tokens=99, reasoning_effort="high"),
            "gemini-3-pro",
            {"includeThoughts": True, "thinkingBudget": 99},
        ),
    ],
)
def test_each_generation_is_told_how_to_think_in_its_own_way(settings, model, told):
    assert encode_thinking(settings, model) == told
