"""Table of the differences (dialects) between providers of the chat completions API.

`Profile.dialect` names a row. A row lists only what differs from the plain form, which nearly every server of open
models understands. An empty dialect name means `plain`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.protocol import Effort
from perdure._core.values.error import ConfigError

ReasoningStyle: TypeAlias = Literal["effort", "object", "thinking", "enable_thinking", "gemini", "none"]
"""Form in which thinking is requested: `reasoning_effort`; `reasoning: {…}`; `thinking: {type: …}`; `enable_thinking`;
Gemini's settings; or not at all. See `settings.py`.
"""
ReasoningField: TypeAlias = Literal["reasoning_content", "reasoning", "content", ""]
"""Field in which a model gets its own thinking back: a field of the message, its content list, or none."""

_MAKERS_CHECK = r"deepseek-(?:v[4-9]|v3[.-][2-9]|flash|pro|reasoner)|kimi-(?:k2[.-]?[5-9]|k2-thinking|k[3-9])|mimo"
"""Models whose makers refuse a conversation if thinking is missing in it; gateways and proxies pass that on."""
REASONING_CONTENT = "reasoning_content"
"""Field in which the thinking must not be missing."""

_ALL: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high")


class ChatDialect(Struct, frozen=True, kw_only=True):
    """Dialect of the chat completions API: fields and quirks of one provider, or of one kind of server."""

    name: str
    """Name used in `Profile.dialect`."""
    max_tokens: str = "max_tokens"
    """Name of the field that limits the length of the response."""
    seed: str = "seed"
    """Name of the seed field; empty if the provider has none."""
    developer_role: bool = False
    """True if OpenAI's reasoning models get their instructions in a message with the role `developer`."""
    reasoning: ReasoningStyle = "effort"
    """Form in which thinking is requested."""
    efforts: tuple[Effort, ...] = _ALL
    """Efforts that the provider understands. Any other is left out of the request."""
    template: bool = False
    """True if `chat_template_kwargs` reach the model's chat template."""
    echo: ReasoningField = "reasoning_content"
    """Field in which a model gets its own thinking back."""
    echo_models: str = ""
    """Regular expression for the models that get their thinking back; empty for all."""
    needs_reasoning_models: str = _MAKERS_CHECK
    """Regular expression for the models that refuse turns of the assistant without thinking, at least those with tool
    calls: a turn that has none, such as one of another model, gets a placeholder. Empty: none.
    """
    has_openai_limits: bool = False
    """True if OpenAI's models are served with OpenAI's own limits."""
    nine_letter_ids: bool = False
    """True if call ids must be exactly nine letters and digits."""
    required: str = "required"
    """Value of `tool_choice` that forces a tool call."""
    signed_calls: bool = False
    """True if calls must carry Gemini's signatures: one that another model made gets a placeholder."""
    named_results: bool = False
    """True if a tool result must name its tool."""
    images_in_results: bool = False
    """True if a tool result may contain images. Otherwise they follow it in a separate user message."""
    document_url: bool = False
    """True if documents are sent as `document_url` instead of `file`."""
    ends_with_question: bool = False
    """True if a conversation must not end with a message of the assistant."""
    model_in_body: bool = True
    """True if the body names the model. Otherwise the URL does."""
    usage_unasked: bool = False
    """True if streams always report usage and `stream_options` are refused."""
    file_annotations: bool = False
    """True if a reply is sent back with the annotations of the files that it read, so that they are not read again."""
    ends_with_done: bool = False
    """True if only `[DONE]` ends a stream: a finish reason is sent with each call, and more may follow."""
    always: Mapping[str, Any] = {}
    """Fields added to every request."""

    def is_reasoning_sent_back(self, model: str) -> bool:
        """Return True if this model gets its own thinking back. DeepSeek R1 refuses it at every provider."""
        name = model.lower()
        if not self.echo or "deepseek-r1" in name:
            return False
        return not self.echo_models or re.search(self.echo_models, name) is not None

    def is_reasoning_needed(self, model: str) -> bool:
        """Return True if this model refuses turns of the assistant without thinking."""
        return bool(self.needs_reasoning_models) and re.search(self.needs_reasoning_models, model.lower()) is not None

    def get_instructions_role(self, model: str) -> str:
        """Return the role of the message that has the instructions: `developer` or `system`."""
        return (
            "developer" if self.developer_role and _is_reasoning_model(model.rpartition("/")[2].lower()) else "system"
        )


_is_reasoning_model = re.compile(r"o\d|gpt-[5-9](?!.*chat)").match
"""Match the names of OpenAI's reasoning models."""

_PLAIN = ChatDialect(name="plain", template=True)
"""The form that servers of open models understand."""
_OPENAI = ChatDialect(name="openai", max_tokens="max_completion_tokens", developer_role=True, has_openai_limits=True)
_OPEN_HOST = replace(_PLAIN, template=False, echo="reasoning", needs_reasoning_models="")
"""A host that runs open models itself, and fills in their chat template: it refuses nothing for missing thinking."""

_ROWS: Sequence[ChatDialect] = (
    _PLAIN,
    _OPENAI,
    # OpenAI's models, and open models that get their thinking back.
    replace(_OPENAI, name="azure", images_in_results=True, model_in_body=False),
    replace(_OPENAI, name="github-models"),
    replace(_OPENAI, name="github-copilot", max_tokens="max_tokens"),
    # Gateways to many providers: one way to request thinking, and reasoning blocks that are sent back unchanged.
    ChatDialect(name="openrouter", reasoning="object", echo="reasoning", ends_with_done=True, file_annotations=True),
    ChatDialect(name="vercel", reasoning="object", echo="reasoning"),
    # Providers that host their own models.
    ChatDialect(name="anthropic", reasoning="thinking", efforts=(), seed="", echo="", needs_reasoning_models=""),
    ChatDialect(
        name="gemini",
        reasoning="gemini",
        seed="",
        named_results=True,
        signed_calls=True,
        echo="",
        needs_reasoning_models="",
    ),
    ChatDialect(
        name="mistral",
        seed="random_seed",
        echo="content",
        needs_reasoning_models="",
        nine_letter_ids=True,
        required="any",
        named_results=True,
        document_url=True,
        ends_with_question=True,
        usage_unasked=True,
        efforts=("none", "high"),
    ),
    ChatDialect(name="xai", max_tokens="max_completion_tokens", efforts=("none", "low", "medium", "high")),
    ChatDialect(name="deepseek", reasoning="thinking"),
    ChatDialect(
        name="kimi",
        reasoning="thinking",
        efforts=(),
        needs_reasoning_models=r"k2[.p-]?[5-9]|k[3-9]|thinking|for-coding",
    ),
    ChatDialect(name="glm", reasoning="thinking", seed=""),
    ChatDialect(
        name="mimo",
        reasoning="thinking",
        max_tokens="max_completion_tokens",
        efforts=("low", "medium", "high"),
    ),
    # Without this MiniMax writes its thinking into the text.
    ChatDialect(name="minimax", max_tokens="max_completion_tokens", seed="", always={"reasoning_split": True}),
    ChatDialect(name="qwen", reasoning="enable_thinking"),
    ChatDialect(name="perplexity", seed="", echo="", needs_reasoning_models=""),
    # Hosts of open models.
    replace(_OPEN_HOST, name="groq", max_tokens="max_completion_tokens", echo_models="qwen"),
    replace(_OPEN_HOST, name="cerebras", max_tokens="max_completion_tokens"),
    replace(_OPEN_HOST, name="together", template=True, ends_with_done=True),
    replace(_OPEN_HOST, name="bedrock", max_tokens="max_completion_tokens"),
    replace(_PLAIN, name="huggingface"),
    replace(_PLAIN, name="featherless"),
    replace(_PLAIN, name="nvidia"),
    replace(_PLAIN, name="fireworks", template=False),
    replace(_PLAIN, name="sambanova"),
    replace(_PLAIN, name="venice", template=False),
    replace(_PLAIN, name="avian", template=False),
    replace(_PLAIN, name="databricks", template=False, usage_unasked=True),
    replace(_PLAIN, name="cloudflare", template=False),
    # Local servers.
    replace(_OPEN_HOST, name="vllm", template=True),
    replace(_PLAIN, name="llamacpp", needs_reasoning_models=""),
    replace(_PLAIN, name="lmstudio", needs_reasoning_models=""),
    replace(_OPEN_HOST, name="ollama", template=True, images_in_results=True),
)

DIALECTS: Mapping[str, ChatDialect] = {row.name: row for row in _ROWS}
"""All rows by name."""

ALIASES: Mapping[str, str] = {
    "": "plain",
    "moonshot": "kimi",
    "zai": "glm",
    "zhipu": "glm",
    "google": "gemini",
    "dashscope": "qwen",
    "vercel-gateway": "vercel",
    "copilot": "github-copilot",
}
"""Alternative names of rows."""


def get_dialect(name: str) -> ChatDialect:
    """Return the dialect with this name or alias. Raise `ConfigError` if there is none."""
    row = DIALECTS.get(ALIASES.get(name, name))
    if row is None:
        known = ", ".join(sorted(DIALECTS))
        message = (
            f"Profile(dialect={name!r}): no such dialect of chat completions; use one of {known}, or leave it empty"
        )
        raise ConfigError(message)
    return row
