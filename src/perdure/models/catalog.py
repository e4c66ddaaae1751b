"""The providers that are known by name. Data, and how a name is found in it. Above: `opening.py`. Below: nothing.

A provider is a row. What its models can do is in `capability.py`; how a wire differs between providers is in the
wire's own table, under the name that stands here as `dialect`.
"""

from collections.abc import Mapping
from typing import Any, Literal, NoReturn, TypeAlias

from msgspec import Struct

from perdure.core.error import ConfigError

WireName: TypeAlias = Literal[
    "openai_chat", "openai_responses", "anthropic", "gemini", "bedrock", "codex", "local", "demo"
]
"""How a provider is spoken to. The last two need no network: they answer in this process."""


class Provider(Struct, frozen=True, kw_only=True):
    """Somebody who serves models."""

    name: str
    title: str
    """What people call it."""
    wire: WireName
    aliases: tuple[str, ...] = ()
    """Other names that open it."""
    base_url: str = ""
    """Where it is, unless somebody says otherwise."""
    url_variables: tuple[str, ...] = ()
    """Environment variables that say otherwise, in order."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that may hold its key, in order."""
    key_header: str = "authorization"
    """The header that the key goes into."""
    key_needed: bool = True
    """Whether it answers nobody without a key."""
    key_urls: Mapping[str, str] = {}
    """Where a key of this variable is good, if that is another place than `base_url`."""
    default_model: str = ""
    """Which model is meant when none is named. Empty: one has to be."""
    example_model: str = ""
    """What a name of its models looks like, where there is no default."""
    dialect: str = ""
    """How it differs from others of its wire."""
    marked: str = ""
    """A pattern for the models whose prompt it caches only up to where it is told."""
    profile: Mapping[str, Any] = {}
    """What it does otherwise than its models would suggest: fields of a `Profile`."""
    many_places: bool = False
    """Whether it is the same provider at whatever address, and so are its prices."""
    own_window: bool = False
    """Whether whoever runs the server decides how much of a model's window there is."""
    price_id: str = ""
    """What `genai-prices` calls it. Empty: its prices are not known."""
    free: bool = False
    """Whether its tokens cost nothing: it runs on a machine of yours."""
    key_page: str = ""
    """Where a key, or the program, comes from."""


PROVIDERS: tuple[Provider, ...] = (
    # OpenAI itself is spoken to by Responses: only there does a model get its encrypted reasoning back. Whatever else
    # OPENAI_BASE_URL may name most likely speaks chat completions, and so does `openai-chat`.
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
        key_page="https://platform.openai.com/api-keys",
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
        key_page="https://platform.openai.com/api-keys",
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
        marked=".",
        profile={"schema": "anthropic"},
        price_id="anthropic",
        key_page="https://console.anthropic.com/settings/keys",
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
        key_page="https://aistudio.google.com/apikey",
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
        marked="claude",
        price_id="openrouter",
        key_page="https://openrouter.ai/settings/keys",
    ),
    Provider(
        name="bedrock",
        title="Amazon Bedrock",
        wire="bedrock",
        aliases=("aws",),
        base_url="https://bedrock-runtime.us-east-1.amazonaws.com",
        url_variables=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
        key_variables=("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
        key_needed=False,  # a role of the machine needs none of them, and only asking tells
        default_model="global.anthropic.claude-sonnet-5-5",
        marked="claude|nova",
        profile={"schema": "bedrock"},
        many_places=True,
        price_id="aws",
        key_page="https://docs.aws.amazon.com/bedrock/latest/userguide/getting-started.html",
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
        many_places=True,
        price_id="azure",
        key_page="https://portal.azure.com",
    ),
    Provider(
        name="codex",
        title="OpenAI Codex, by subscription",
        wire="codex",
        base_url="https://chatgpt.com/backend-api/codex",
        key_needed=False,  # the file that its own command line keeps
        default_model="gpt-5.5",
        dialect="codex",
        profile={"schema": "openai_strict", "strict_tools": True, "context_tokens": 400_000},
        key_page="https://developers.openai.com/codex/cli",
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
        key_page="https://console.groq.com/keys",
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
        key_page="https://platform.deepseek.com/api_keys",
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
        profile={"schema": "mistral"},
        price_id="mistral",
        key_page="https://console.mistral.ai/api-keys",
    ),
    Provider(
        name="xai",
        title="xAI",
        wire="openai_chat",
        aliases=("grok", "x-ai"),
        base_url="https://api.x.ai/v1",
        url_variables=("XAI_BASE_URL",),
        key_variables=("XAI_API_KEY", "GROK_API_KEY"),
        default_model="grok-4.7",
        dialect="xai",
        price_id="x-ai",
        key_page="https://console.x.ai",
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
        key_page="https://platform.moonshot.ai/console/api-keys",
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
        key_page="https://z.ai/manage-apikey/apikey-list",
    ),
    Provider(
        name="minimax",
        title="MiniMax",
        wire="anthropic",  # the one of its two endpoints that keeps thinking between turns
        base_url="https://api.minimax.io/anthropic",
        url_variables=("MINIMAX_BASE_URL",),
        key_variables=("MINIMAX_API_KEY",),
        key_header="x-api-key",
        default_model="MiniMax-M3",
        profile={"schema": "anthropic", "output": "none"},
        price_id="minimax",
        key_page="https://platform.minimax.io/user-center/basic-information/interface-key",
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
        key_page="https://platform.xiaomimimo.com",
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
        key_page="https://api.together.ai/settings/api-keys",
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
        key_page="https://cloud.cerebras.ai",
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
        key_page="https://huggingface.co/settings/tokens",
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
        key_page="https://build.nvidia.com",
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
        own_window=True,
        key_page="https://featherless.ai/account/api-keys",
    ),
    Provider(
        name="ollama",
        title="Ollama",
        wire="openai_chat",
        base_url="http://localhost:11434/v1",
        url_variables=("OLLAMA_BASE_URL", "OLLAMA_HOST"),
        key_variables=("OLLAMA_API_KEY",),
        key_needed=False,
        example_model="qwen3:4b",
        dialect="ollama",
        profile={"schema": "llamacpp"},
        many_places=True,
        own_window=True,
        free=True,
        key_page="https://ollama.com/download",
    ),
    Provider(
        name="lmstudio",
        title="LM Studio",
        wire="openai_chat",
        aliases=("lm-studio", "lm_studio"),
        base_url="http://localhost:1234/v1",
        url_variables=("LMSTUDIO_BASE_URL", "LM_STUDIO_BASE_URL"),
        key_variables=("LMSTUDIO_API_KEY",),
        key_needed=False,
        example_model="qwen/qwen3-4b",
        dialect="lmstudio",
        profile={"schema": "llamacpp"},
        many_places=True,
        own_window=True,
        free=True,
        key_page="https://lmstudio.ai",
    ),
    Provider(
        name="vllm",
        title="vLLM",
        wire="openai_chat",
        base_url="http://localhost:8000/v1",
        url_variables=("VLLM_BASE_URL",),
        key_variables=("VLLM_API_KEY",),
        key_needed=False,
        example_model="Qwen/Qwen3-0.6B",
        dialect="vllm",
        many_places=True,
        own_window=True,
        key_page="https://docs.vllm.ai",
    ),
    Provider(
        name="local",
        title="Weights in this process",
        wire="local",
        key_needed=False,
        default_model="smollm2",
        own_window=True,
        free=True,
    ),
    Provider(
        name="demo",
        title="Offline demonstration",
        wire="demo",
        key_needed=False,
        default_model="words",
        free=True,
    ),
)
"""Every provider that is known, the most asked for first."""


def names() -> list[str]:
    """What the known providers are called, in the order of the table."""
    return [each.name for each in PROVIDERS]


def find(name: str) -> Provider | None:
    """The provider of this name or alias, whatever the case of its letters."""
    return _by_name().get(name.lower())


def refuse_unknown(name: str, spec: str, others: list[str]) -> NoReturn:
    """Say that there is no such provider, and which is likely to be meant."""
    from difflib import get_close_matches

    known = sorted({*others, *_by_name()})
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(sorted({*others, *names()}))}."
    raise ConfigError(
        f"there is no model provider {name!r} (in {spec!r}); {hint} `perdure models` lists them, "
        f"perdure.models.register adds one, and openai_compatible(base_url, model) needs none"
    )


_found: dict[str, Provider] = {}


def _by_name() -> Mapping[str, Provider]:
    if not _found:
        for each in PROVIDERS:
            _found.update(dict.fromkeys((each.name, *each.aliases), each))
    return _found
