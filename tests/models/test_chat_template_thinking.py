"""How open models are told whether to think."""

import pytest

from perdure.models.chat_template_thinking import add_template_kwargs, build_template_kwargs, find_reasoning_profile


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


def test_models_that_think_between_calls_are_known() -> None:
    interleaved = [
        name
        for name in ("deepseek-v3.2", "glm-4.6", "kimi-k2.5", "minimax-m2", "qwen3-8b", "gpt-oss-120b")
        if (profile := find_reasoning_profile(name)) and profile.interleaved
    ]
    assert interleaved == ["glm-4.6", "kimi-k2.5", "minimax-m2", "qwen3-8b"]


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
