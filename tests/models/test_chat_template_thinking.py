"""How open models are told whether to think."""

import pytest

from perdure.models import (
    add_template_kwargs,
    build_template_kwargs,
    find_reasoning_profile,
)


@pytest.mark.parametrize(
    ("model", "mode", "kwargs"),
    [
        ("deepseek-ai/DeepSeek-R1-0528", "off", {}),
        ("deepseek-ai/DeepSeek-V3.2", "auto", {"thinking": False}),
        ("deepseek-ai/DeepSeek-V3.2", "on", {"thinking": True}),
        ("zai-org/GLM-4.6", "auto", {"enable_thinking": True, "clear_thinking": False}),
        ("zai-org/GLM-4.6", "off", {"enable_thinking": False}),
        ("moonshotai/Kimi-K2-Instruct-0905", "on", {}),
        ("moonshotai/Kimi-K2-Thinking", "on", {}),
        ("moonshotai/Kimi-K2.5", "on", {"thinking": True, "preserve_thinking": True}),
        ("MiniMaxAI/MiniMax-M2", "on", {}),
        ("Qwen/Qwen3-Coder-480B", "on", {}),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "on", {}),
        ("Qwen/Qwen3.5-4B", "auto", {"enable_thinking": False}),
        ("Qwen/Qwen3.5-4B", "on", {"enable_thinking": True, "preserve_thinking": True}),
        ("Qwen/Qwen3.5-397B-A17B", "auto", {"enable_thinking": True, "preserve_thinking": True}),
        ("Qwen/Qwen3.6-35B", "off", {"enable_thinking": False}),
        ("Qwen/Qwen3.6-35B", "on", {"enable_thinking": True, "preserve_thinking": True}),
        ("Qwen/Qwen3-4B-Thinking-2507", "off", {}),
        ("Qwen/Qwen3-8B", "auto", {"enable_thinking": True}),
        ("google/gemma-4-27b", "auto", {"enable_thinking": False}),
        ("XiaomiMiMo/MiMo-V2-Flash", "on", {"enable_thinking": True}),
        ("openai/gpt-oss-20b", "off", {}),
        ("stepfun-ai/Step-3", "on", {}),
        ("meta-llama/Llama-3.1-8B", "on", {}),
        ("Qwen/Qwen3-8B", None, {}),
    ],
)
def test_the_template_of_a_model_is_told_what_it_understands(model: str, mode: str | None, kwargs: object) -> None:
    assert build_template_kwargs(model, mode) == kwargs  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("models", "reasoning", "default_on", "interleaved"),
    [
        (["kimi-k2-instruct", "qwen3-coder-480b", "qwen3-235b-instruct"], False, False, False),
        (["deepseek-v3.2", "gemma-4-27b", "mimo-v2-flash"], True, False, False),
        (["deepseek-r1", "gpt-oss-120b", "step-3"], True, True, False),
        (["qwen3.5-2b", "qwen3.5-4b", "qwen3.5-9b"], True, False, True),
        (["glm-4.6", "kimi-k2-thinking", "kimi-k2.5", "minimax-m2"], True, True, True),
        (["qwen3.5-397b", "qwen3.6-35b", "qwen3-4b-thinking", "qwen3-8b"], True, True, True),
    ],
)
def test_which_models_think_by_themselves_and_between_calls_is_known(
    models: list[str], *, reasoning: bool, default_on: bool, interleaved: bool
) -> None:
    for model in models:
        profile = find_reasoning_profile(model)
        assert profile is not None
        assert (profile.reasoning, profile.default_on, profile.interleaved) == (reasoning, default_on, interleaved)


def test_a_proxy_adds_the_arguments_to_a_copy_of_a_request() -> None:
    body = {"model": "Qwen/Qwen3-8B", "messages": []}
    assert add_template_kwargs(body, "off") == {**body, "chat_template_kwargs": {"enable_thinking": False}}
    assert "chat_template_kwargs" not in body


def test_a_proxy_merges_the_arguments_with_those_of_the_request() -> None:
    body = {"model": "Qwen/Qwen3-8B", "chat_template_kwargs": {"documents": ["a"]}}
    assert add_template_kwargs(body, "off") == {
        "model": "Qwen/Qwen3-8B",
        "chat_template_kwargs": {"documents": ["a"], "enable_thinking": False},
    }
    assert body["chat_template_kwargs"] == {"documents": ["a"]}
    given = {"model": "zai/glm-4.6", "chat_template_kwargs": {"enable_thinking": True}}
    merged = add_template_kwargs(given, "on")
    assert merged["chat_template_kwargs"] == {"enable_thinking": True, "clear_thinking": False}


@pytest.mark.parametrize(
    "body",
    [
        {"model": "Qwen/Qwen3-8B", "chat_template_kwargs": None},
        {"model": "Qwen/Qwen3-8B", "chat_template_kwargs": {"enable_thinking": True}},
        {"model": "nobody/knows-this-one"},
        {"model": "openai/gpt-oss-20b"},
        {"messages": []},
    ],
)
def test_a_proxy_leaves_alone_what_it_has_nothing_to_add_to(body: dict[str, object]) -> None:
    assert add_template_kwargs(body, "off") is body
