"""Catalogue of the built-in model providers, and lookup by name.

Each provider is a row. Capabilities of models are in `families.py`; differences between providers of a wire are
in the wire's own table, under the name given here as `dialect`.
"""

import itertools
from collections.abc import Mapping
from typing import NoReturn

from perdure._core.values.error import ConfigError

from .entry import Provider as Provider  # noqa: PLC0414 - other modules import both from here
from .entry import WireName as WireName  # noqa: PLC0414

PROVIDERS: tuple[Provider, ...] = (
    # OpenAI itself is used through Responses: only there does a model get its encrypted reasoning back. Any other
    # server that OPENAI_BASE_URL names most likely serves chat completions, which `openai-chat` uses too.
    Provider(
        name="openai",
        title="OpenAI",
        wire="openai_responses",
        base_url="https://api.openai.com/v1",
        url_variables=("OPENAI_BASE_URL",),
        key_variables=("OPENAI_API_KEY",),
        default_model="gpt-6.1-sol",
        profile={"schema": "openai_strict", "strict_tools": True},
        price_id="openai",
        key_help_url="https://platform.openai.com/api-keys",
    ),
    Provider(
        name="openai-chat",
        title="OpenAI, chat completions",
        wire="openai_chat",
        aliases=("openai_chat",),
        base_url="https://api.openai.com/v1",
        url_variables=("OPENAI_BASE_URL",),
        key_variables=("OPENAI_API_KEY",),
        default_model="gpt-6.1-sol",
        dialect="openai",
        profile={"schema": "openai_strict", "strict_tools": True},
        price_id="openai",
        key_help_url="https://platform.openai.com/api-keys",
    ),
    Provider(
        name="anthropic",
        title="Anthropic",
        wire="anthropic",
        aliases=("claude",),
        base_url="https://api.anthropic.com",
        url_variables=("ANTHROPIC_BASE_URL",),
        key_variables=("ANTHROPIC_API_KEY",),
        key_header="x-api-key",
        default_model="claude-sonnet-5-5",
        cache_marked_models=".",
        profile={"schema": "anthropic"},
        price_id="anthropic",
        key_help_url="https://console.anthropic.com/settings/keys",
    ),
    Provider(
        name="gemini",
        title="Google Gemini",
        wire="gemini",
        aliases=("google", "google-gla"),
        base_url="https://generativelanguage.googleapis.com/v1beta",
        url_variables=("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        key_header="x-goog-api-key",
        default_model="gemini-3.8-flash",
        profile={"schema": "gemini"},
        price_id="google",
        key_help_url="https://aistudio.google.com/apikey",
    ),
    Provider(
        name="gemini-chat",
        title="Google Gemini, chat completions",
        wire="openai_chat",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        default_model="gemini-3.8-flash",
        dialect="gemini",
        profile={"schema": "gemini", "documents": False, "video": False},
        price_id="google",
        key_help_url="https://aistudio.google.com/apikey",
    ),
    Provider(
        name="vertex",
        title="Google Vertex AI",
        wire="vertex",
        aliases=("google-vertex", "vertexai", "vertex-ai", "vertex_ai"),
        base_url="https://aiplatform.googleapis.com/v1",
        url_variables=("VERTEX_BASE_URL", "GOOGLE_VERTEX_BASE_URL"),
        key_variables=("VERTEX_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"),
        needs_key=False,  # a login of gcloud, or the service account of the machine, needs neither
        default_model="gemini-3.8-flash",
        dialect="vertex",
        profile={"schema": "gemini"},
        same_at_any_url=True,
        price_id="google",
        key_help_url="https://cloud.google.com/docs/authentication/provide-credentials-adc",
    ),
    Provider(
        name="openrouter",
        title="OpenRouter",
        wire="openai_chat",
        base_url="https://openrouter.ai/api/v1",
        url_variables=("OPENROUTER_BASE_URL",),
        key_variables=("OPENROUTER_API_KEY",),
        default_model="anthropic/claude-sonnet-5.5",
        dialect="openrouter",
        cache_marked_models="claude",
        document_models=".",
        price_id="openrouter",
        key_help_url="https://openrouter.ai/settings/keys",
    ),
    Provider(
        name="bedrock",
        title="Amazon Bedrock",
        wire="bedrock",
        aliases=("aws",),
        base_url="https://bedrock-runtime.us-east-1.amazonaws.com",
        url_variables=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
        key_variables=("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
        needs_key=False,  # a role of the machine needs none of them
        default_model="global.anthropic.claude-sonnet-5-5",
        cache_marked_models="claude|nova",
        profile={"schema": "bedrock"},
        same_at_any_url=True,
        price_id="aws",
        key_help_url="https://docs.aws.amazon.com/bedrock/latest/userguide/getting-started.html",
    ),
    Provider(
        name="azure",
        title="Azure OpenAI",
        wire="openai_chat",
        aliases=("azure-openai",),
        url_variables=("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_BASE_URL"),
        key_variables=("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
        key_header="api-key",
        example_model="the-name-of-your-deployment",
        dialect="azure",
        profile={"schema": "openai_strict", "strict_tools": True},
        same_at_any_url=True,
        price_id="azure",
        key_help_url="https://portal.azure.com",
    ),
    # A name of its own, since Azure serves the models of other makers through chat completions only.
    Provider(
        name="azure-responses",
        title="Azure OpenAI, Responses",
        wire="openai_responses",
        aliases=("azure_responses", "azure-openai-responses"),
        url_variables=("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_BASE_URL"),
        key_variables=("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
        key_header="api-key",
        example_model="the-name-of-your-deployment",
        dialect="azure",
        profile={"schema": "openai_strict", "strict_tools": True},
        same_at_any_url=True,
        price_id="azure",
        key_help_url="https://portal.azure.com",
    ),
    Provider(
        name="codex",
        title="OpenAI Codex, by subscription",
        wire="codex",
        base_url="https://chatgpt.com/backend-api/codex",
        needs_key=False,  # it uses the login file of the Codex CLI
        default_model="gpt-5.5",
        dialect="codex",
        profile={"schema": "openai_strict", "strict_tools": True, "context_tokens": 400_000},
        key_help_url="https://developers.openai.com/codex/cli",
    ),
    Provider(
        name="groq",
        title="Groq",
        wire="openai_chat",
        base_url="https://api.groq.com/openai/v1",
        url_variables=("GROQ_BASE_URL",),
        key_variables=("GROQ_API_KEY",),
        default_model="openai/gpt-oss-120b",
        dialect="groq",
        price_id="groq",
        key_help_url="https://console.groq.com/keys",
    ),
    Provider(
        name="deepseek",
        title="DeepSeek",
        wire="openai_chat",
        base_url="https://api.deepseek.com",
        url_variables=("DEEPSEEK_BASE_URL",),
        key_variables=("DEEPSEEK_API_KEY",),
        default_model="deepseek-v4-flash",
        dialect="deepseek",
        profile={"output": "object"},
        price_id="deepseek",
        key_help_url="https://platform.deepseek.com/api_keys",
    ),
    Provider(
        name="mistral",
        title="Mistral",
        wire="openai_chat",
        aliases=("mistralai",),
        base_url="https://api.mistral.ai/v1",
        url_variables=("MISTRAL_BASE_URL",),
        key_variables=("MISTRAL_API_KEY",),
        default_model="mistral-medium-latest",
        dialect="mistral",
        document_models="(mi|ma|mini)stral|pixtral",
        profile={"schema": "mistral"},
        price_id="mistral",
        key_help_url="https://console.mistral.ai/api-keys",
    ),
    # xAI reads documents, and returns encrypted reasoning, only through Responses; `xai-chat` uses chat completions.
    Provider(
        name="xai",
        title="xAI",
        wire="openai_responses",
        aliases=("grok", "x-ai"),
        base_url="https://api.x.ai/v1",
        url_variables=("XAI_BASE_URL",),
        key_variables=("XAI_API_KEY", "GROK_API_KEY"),
        default_model="grok-4.7",
        dialect="xai",
        document_models="grok-([4-9]|build|code)",
        price_id="x-ai",
        key_help_url="https://console.x.ai",
    ),
    Provider(
        name="xai-chat",
        title="xAI, chat completions",
        wire="openai_chat",
        aliases=("xai_chat",),
        base_url="https://api.x.ai/v1",
        url_variables=("XAI_BASE_URL",),
        key_variables=("XAI_API_KEY", "GROK_API_KEY"),
        default_model="grok-4.7",
        dialect="xai",
        price_id="x-ai",
        key_help_url="https://console.x.ai",
    ),
    Provider(
        name="kimi",
        title="Kimi, by Moonshot",
        wire="openai_chat",
        aliases=("moonshot", "moonshotai"),
        base_url="https://api.moonshot.ai/v1",
        url_variables=("MOONSHOT_BASE_URL", "KIMI_BASE_URL"),
        key_variables=("MOONSHOT_API_KEY", "KIMI_API_KEY"),
        default_model="kimi-k3.1-pro",
        dialect="kimi",
        price_id="moonshotai",
        key_help_url="https://platform.moonshot.ai/console/api-keys",
    ),
    Provider(
        name="glm",
        title="GLM, by Z.ai",
        wire="openai_chat",
        aliases=("zai", "zhipu", "zhipuai"),
        base_url="https://api.z.ai/api/paas/v4",
        url_variables=("ZAI_BASE_URL", "GLM_BASE_URL"),
        key_variables=("ZAI_API_KEY", "ZHIPUAI_API_KEY"),
        key_urls={"ZHIPUAI_API_KEY": "https://open.bigmodel.cn/api/paas/v4"},
        default_model="glm-5.3",
        dialect="glm",
        profile={"output": "object"},
        price_id="zai",
        key_help_url="https://z.ai/manage-apikey/apikey-list",
    ),
    Provider(
        name="minimax",
        title="MiniMax",
        wire="anthropic",  # of its two endpoints, the one that preserves thinking between turns
        base_url="https://api.minimax.io/anthropic",
        url_variables=("MINIMAX_BASE_URL",),
        key_variables=("MINIMAX_API_KEY",),
        key_header="x-api-key",
        default_model="MiniMax-M3",
        profile={"schema": "anthropic", "output": "none"},
        price_id="minimax",
        key_help_url="https://platform.minimax.io/user-center/basic-information/interface-key",
    ),
    Provider(
        name="mimo",
        title="MiMo, by Xiaomi",
        wire="openai_chat",
        aliases=("xiaomi",),
        base_url="https://api.xiaomimimo.com/v1",
        url_variables=("MIMO_BASE_URL",),
        key_variables=("MIMO_API_KEY",),
        default_model="mimo-v2.5",
        dialect="mimo",
        profile={"output": "object"},
        key_help_url="https://platform.xiaomimimo.com",
    ),
    Provider(
        name="together",
        title="Together AI",
        wire="openai_chat",
        aliases=("togetherai",),
        base_url="https://api.together.xyz/v1",
        url_variables=("TOGETHER_BASE_URL",),
        key_variables=("TOGETHER_API_KEY",),
        default_model="zai-org/GLM-5.3",
        dialect="together",
        price_id="together",
        key_help_url="https://api.together.ai/settings/api-keys",
    ),
    Provider(
        name="cerebras",
        title="Cerebras",
        wire="openai_chat",
        base_url="https://api.cerebras.ai/v1",
        url_variables=("CEREBRAS_BASE_URL",),
        key_variables=("CEREBRAS_API_KEY",),
        default_model="gpt-oss-120b",
        dialect="cerebras",
        price_id="cerebras",
        key_help_url="https://cloud.cerebras.ai",
    ),
    Provider(
        name="huggingface",
        title="Hugging Face",
        wire="openai_chat",
        aliases=("hf",),
        base_url="https://router.huggingface.co/v1",
        url_variables=("HF_BASE_URL",),
        key_variables=("HF_TOKEN", "HUGGINGFACE_API_KEY", "HUGGING_FACE_HUB_TOKEN"),
        default_model="openai/gpt-oss-120b",
        dialect="huggingface",
        key_help_url="https://huggingface.co/settings/tokens",
    ),
    Provider(
        name="nvidia",
        title="NVIDIA NIM",
        wire="openai_chat",
        aliases=("nim",),
        base_url="https://integrate.api.nvidia.com/v1",
        url_variables=("NVIDIA_BASE_URL",),
        key_variables=("NVIDIA_API_KEY",),
        default_model="moonshotai/kimi-k2.6",
        dialect="nvidia",
        key_help_url="https://build.nvidia.com",
    ),
    Provider(
        name="featherless",
        title="Featherless",
        wire="openai_chat",
        base_url="https://api.featherless.ai/v1",
        url_variables=("FEATHERLESS_BASE_URL",),
        key_variables=("FEATHERLESS_API_KEY",),
        example_model="Qwen/Qwen3-32B",
        dialect="featherless",
        window_set_by_server=True,
        key_help_url="https://featherless.ai/account/api-keys",
    ),
    Provider(
        name="ollama",
        title="Ollama",
        wire="openai_chat",
        base_url="http://localhost:11434/v1",
        url_variables=("OLLAMA_BASE_URL", "OLLAMA_HOST"),
        key_variables=("OLLAMA_API_KEY",),
        needs_key=False,
        example_model="qwen3:4b",
        dialect="ollama",
        profile={"schema": "llamacpp"},
        same_at_any_url=True,
        window_set_by_server=True,
        is_free=True,
        key_help_url="https://ollama.com/download",
    ),
    # Its own API, which takes the size of the context window and refuses a prompt that is too long.
    Provider(
        name="ollama-native",
        title="Ollama, native API",
        wire="ollama",
        base_url="http://localhost:11434",
        url_variables=("OLLAMA_BASE_URL", "OLLAMA_HOST"),
        key_variables=("OLLAMA_API_KEY",),
        needs_key=False,
        example_model="qwen3:4b",
        profile={"schema": "llamacpp"},
        same_at_any_url=True,
        window_set_by_server=True,
        is_free=True,
        key_help_url="https://ollama.com/download",
    ),
    Provider(
        name="lmstudio",
        title="LM Studio",
        wire="openai_chat",
        aliases=("lm-studio", "lm_studio"),
        base_url="http://localhost:1234/v1",
        url_variables=("LMSTUDIO_BASE_URL", "LM_STUDIO_BASE_URL"),
        key_variables=("LMSTUDIO_API_KEY",),
        needs_key=False,
        example_model="qwen/qwen3-4b",
        dialect="lmstudio",
        profile={"schema": "llamacpp"},
        same_at_any_url=True,
        window_set_by_server=True,
        is_free=True,
        key_help_url="https://lmstudio.ai",
    ),
    Provider(
        name="vllm",
        title="vLLM",
        wire="openai_chat",
        base_url="http://localhost:8000/v1",
        url_variables=("VLLM_BASE_URL",),
        key_variables=("VLLM_API_KEY",),
        needs_key=False,
        example_model="Qwen/Qwen3-0.6B",
        dialect="vllm",
        same_at_any_url=True,
        window_set_by_server=True,
        key_help_url="https://docs.vllm.ai",
    ),
    Provider(
        name="local",
        title="Weights in this process",
        wire="local",
        needs_key=False,
        default_model="smollm2",
        window_set_by_server=True,
        is_free=True,
    ),
    Provider(
        name="demo",
        title="Offline demonstration",
        wire="demo",
        needs_key=False,
        default_model="words",
        is_free=True,
    ),
)
"""All built-in providers, the most popular first."""


def list_provider_names() -> list[str]:
    """Return the names of the built-in providers, in the order of the catalogue."""
    return [each.name for each in PROVIDERS]


def find_provider(name: str) -> Provider | None:
    """Return the built-in provider with this name or alias, ignoring case; `None` if there is none."""
    return _get_providers_by_name().get(name.lower())


def raise_unknown_provider(name: str, spec: str, registered: list[str]) -> NoReturn:
    """Raise `ConfigError` for an unknown provider name, with suggestions of providers that may be meant."""
    place = "" if name == spec else f" (in {spec!r})"
    suggestion = _format_suggestion(name, spec, registered)
    raise ConfigError(
        f"unknown model provider {name!r}{place}; {suggestion} `perdure models` lists all providers, "
        f"perdure.models.register adds one, and openai_compatible(base_url, model) needs none"
    )


_COMMON: tuple[str, ...] = ("openai", "anthropic", "gemini", "openrouter", "ollama")
"""The providers that an error names when none of them is near to what was given."""
_MOST_SUGGESTIONS = 3


def _format_suggestion(name: str, spec: str, others: list[str]) -> str:
    """Return the end of the error text: providers that serve such a model, the nearest name, or the common ones."""
    from difflib import get_close_matches

    if name == spec and (serving := _find_providers_serving(name)):
        *most, last = [f"'{each}:{name}'" for each in serving]
        either = f"{', '.join(most)} or {last}" if most else last
        return f"a model is named together with its provider: did you mean {either}?"
    near = get_close_matches(name.lower(), sorted({*others, *_get_providers_by_name()}), n=1, cutoff=0.7)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join([*others, *_COMMON])} and others."


def _find_providers_serving(model: str) -> list[str]:
    """Return the providers whose default model begins with the same letters, such as `gpt` of `gpt-4o`."""
    kind = _get_name_prefix(model)
    alike = [
        each.name for each in PROVIDERS if kind and kind == _get_name_prefix(each.default_model or each.example_model)
    ]
    return alike[:_MOST_SUGGESTIONS]


def _get_name_prefix(model: str) -> str:
    """Return the letters that a model's name begins with, such as `gpt`; empty for `maker/model`."""
    letters = itertools.takewhile(str.isalpha, model.lower())
    return "" if "/" in model else "".join(letters)


_providers_by_name: dict[str, Provider] = {}


def _get_providers_by_name() -> Mapping[str, Provider]:
    if not _providers_by_name:
        for each in PROVIDERS:
            _providers_by_name.update(dict.fromkeys((each.name, *each.aliases), each))
    return _providers_by_name
