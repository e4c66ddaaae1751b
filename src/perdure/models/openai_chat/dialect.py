"""How those who speak chat completions differ, as a table. Above: the other modules of this wire. Below: `core`.

`Profile.dialect` names a row. A row says only what is unlike the plain form, which is what nearly every server of open
models understands; whoever is not in the table speaks `plain`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.error import ConfigError
from perdure.core.model import Effort

Reasoning: TypeAlias = Literal["effort", "object", "thinking", "enable_thinking", "gemini", "none"]
"""How thinking is asked for: `reasoning_effort`; `reasoning: {…}`; `thinking: {type: …}`; `enable_thinking`; Gemini's
own settings; not at all. See `asking.py`."""
Echo: TypeAlias = Literal["reasoning_content", "reasoning", "content", ""]
"""Where a model wants its thinking back: in a field of the message; in its list of content; nowhere."""

_ALL: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high")


class Dialect(Struct, frozen=True, kw_only=True):
    """How one family of endpoints wants to be spoken to."""

    name: str
    """What `Profile.dialect` calls it."""
    max_tokens: str = "max_tokens"
    """What the limit of the answer is called."""
    seed: str = "seed"
    """What the seed is called; empty where none is taken."""
    developer_role: bool = False
    """Whether reasoning models of OpenAI take their instructions from a `developer`."""
    reasoning: Reasoning = "effort"
    """How thinking is asked for."""
    efforts: tuple[Effort, ...] = _ALL
    """The efforts that are understood. Any other is left out."""
    template: bool = False
    """Whether `chat_template_kwargs` reach the chat template of the model."""
    echo: Echo = "reasoning_content"
    """Where a model gets its own thinking back."""
    echo_models: str = ""
    """A pattern for the models that take their thinking back; empty: all."""
    nine_letter_ids: bool = False
    """Whether ids of calls have to be nine letters and digits."""
    required: str = "required"
    """How it is said that some tool has to be called."""
    signed_calls: bool = False
    """Whether calls carry signatures of Gemini, which it wants back."""
    named_results: bool = False
    """Whether a result has to name its tool."""
    images_in_results: bool = False
    """Whether a result may hold pictures. Elsewhere they follow it as a message of their own."""
    document_url: bool = False
    """Whether documents are given as `document_url` and not as `file`."""
    ends_with_question: bool = False
    """Whether a model cannot be asked to go on with what it has said last."""
    model_in_body: bool = True
    """Whether a request names its model. Elsewhere the address does."""
    usage_unasked: bool = False
    """Whether usage comes with a stream as it is, and `stream_options` are refused."""
    ends_with_done: bool = False
    """Whether only `[DONE]` ends a stream: a reason to stop is told with each call, and more may follow."""
    always: Mapping[str, Any] = {}
    """Said with every request."""

    def takes_back(self, model: str) -> bool:
        """Whether this model wants its own thinking back. DeepSeek R1 refuses it, wherever it is served."""
        name = model.lower()
        if not self.echo or "deepseek-r1" in name:
            return False
        return not self.echo_models or re.search(self.echo_models, name) is not None

    def instructions_role(self, model: str) -> str:
        """Who speaks the instructions."""
        return "developer" if self.developer_role and _REASONS(model.rpartition("/")[2].lower()) else "system"


_REASONS = re.compile(r"o\d|gpt-[5-9](?!.*chat)").match
"""Names of OpenAI's reasoning models."""

_PLAIN = Dialect(name="plain", template=True)
"""What servers of open models understand."""
_OPENAI = Dialect(name="openai", max_tokens="max_completion_tokens", developer_role=True)

_ROWS: Sequence[Dialect] = (
    _PLAIN,
    _OPENAI,
    # OpenAI's models, and open ones that want their thinking back.
    replace(_OPENAI, name="azure", images_in_results=True, model_in_body=False),
    replace(_OPENAI, name="github-models"),
    replace(_OPENAI, name="github-copilot", max_tokens="max_tokens"),
    # Gateways to everybody's models: one way to ask for thinking, and blocks that come back as they are.
    Dialect(name="openrouter", reasoning="object", echo="reasoning", ends_with_done=True),
    Dialect(name="vercel", reasoning="object", echo="reasoning"),
    # Those who host their own.
    Dialect(name="anthropic", reasoning="thinking", efforts=(), seed="", echo=""),
    Dialect(name="gemini", reasoning="gemini", seed="", named_results=True, signed_calls=True, echo=""),
    Dialect(
        name="mistral",
        seed="random_seed",
        echo="content",
        nine_letter_ids=True,
        required="any",
        named_results=True,
        document_url=True,
        ends_with_question=True,
        usage_unasked=True,
        efforts=("none", "high"),
    ),
    Dialect(name="xai", max_tokens="max_completion_tokens", efforts=("none", "low", "medium", "high")),
    Dialect(name="deepseek", reasoning="thinking"),
    Dialect(name="kimi", reasoning="thinking", efforts=()),
    Dialect(name="glm", reasoning="thinking", seed=""),
    Dialect(name="mimo", reasoning="thinking", max_tokens="max_completion_tokens", efforts=("low", "medium", "high")),
    # Without this MiniMax writes its thinking into the text.
    Dialect(name="minimax", max_tokens="max_completion_tokens", seed="", always={"reasoning_split": True}),
    Dialect(name="qwen", reasoning="enable_thinking"),
    Dialect(name="perplexity", seed="", echo=""),
    # Hosts of open models.
    Dialect(name="groq", max_tokens="max_completion_tokens", echo="reasoning", echo_models="qwen"),
    Dialect(name="cerebras", max_tokens="max_completion_tokens", echo="reasoning"),
    Dialect(name="together", echo="reasoning", template=True, ends_with_done=True),
    replace(_PLAIN, name="bedrock", echo="reasoning", template=False, max_tokens="max_completion_tokens"),
    replace(_PLAIN, name="huggingface"),
    replace(_PLAIN, name="featherless"),
    replace(_PLAIN, name="nvidia"),
    replace(_PLAIN, name="fireworks", template=False),
    replace(_PLAIN, name="sambanova"),
    replace(_PLAIN, name="venice", template=False),
    replace(_PLAIN, name="avian", template=False),
    replace(_PLAIN, name="databricks", template=False, usage_unasked=True),
    replace(_PLAIN, name="cloudflare", template=False),
    # On a machine of yours.
    replace(_PLAIN, name="vllm", echo="reasoning"),
    replace(_PLAIN, name="llamacpp"),
    replace(_PLAIN, name="lmstudio"),
    replace(_PLAIN, name="ollama", echo="reasoning", images_in_results=True),
)

DIALECTS: Mapping[str, Dialect] = {row.name: row for row in _ROWS}
"""Every row by its name."""

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
"""Other names of rows."""


def dialect_of(name: str) -> Dialect:
    """The row of this name."""
    row = DIALECTS.get(ALIASES.get(name, name))
    if row is None:
        known = ", ".join(sorted(DIALECTS))
        message = (
            f"Profile(dialect={name!r}): no such dialect of chat completions; use one of {known}, or leave it empty"
        )
        raise ConfigError(message)
    return row
