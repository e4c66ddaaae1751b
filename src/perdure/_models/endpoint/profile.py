"""Profile of a model at an endpoint: its capabilities and limits, and how requests to it are encoded.

A profile is data. The catalogue has one for each provider that it contains, and a probe writes one for any other
endpoint. Wires read nothing else: every quirk of an endpoint is a field of its profile.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from perdure._core.model.protocol import ModelInfo, OutputMode, Price
from perdure._core.values.checks import StrictOptionsMeta

ToolMode: TypeAlias = Literal["native", "json", "none"]
"""How tools are called: natively; as JSON that the reply is constrained to (`json_tools`); or not at all."""
CacheMode: TypeAlias = Literal["automatic", "marked", "none"]
"""How prompts are cached: by the provider itself; up to marked places; or not at all."""


class Profile(Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=StrictOptionsMeta):
    """Capabilities and limits of one model at one endpoint, and the options for encoding requests to it."""

    provider: str
    """Name of the provider. With `model` it is the author of replies: thinking is only sent back to its author."""
    model: str
    """Name of the model at the provider."""
    context_tokens: int | None = None
    """Size of the context window in tokens."""
    max_output_tokens: int | None = None
    """Maximum length of a reply in tokens."""
    price: Price | None = None
    """Price, if it is known."""
    tools: ToolMode = "native"
    """How it calls tools."""
    parallel_tool_calls: bool = True
    """True if it can be limited to one tool call at a time."""
    strict_tools: bool = False
    """True if it can enforce the schemas of tools."""
    output: Literal["schema", "object", "none"] = "schema"
    """Constraint that it can enforce on replies: a JSON Schema; any JSON object; none."""
    schema: str = "plain"
    """Name of the JSON Schema dialect that it supports, of `schemas`."""
    images: bool = True
    documents: bool = False
    audio: bool = False
    video: bool = False
    """Media that it accepts besides text. Any other media is replaced by a note."""
    cache: CacheMode = "automatic"
    """How its prompt cache is used."""
    streams: bool = True
    """True if it can stream."""
    usage_in_stream: bool = True
    """True if it can be asked to report usage in a stream."""
    sampling: bool = True
    """False if it refuses `temperature` and `top_p`. OpenAI's models are known by their names."""
    thinks_with_tools: bool = True
    """False if chat completions refuse functions while it thinks: then it does not think in requests with tools.
    OpenAI's models are known by their names.
    """
    needs_reasoning: bool = False
    """True if it refuses turns of the assistant without thinking: those of other models get a placeholder. Models that
    are known to do so need no `True`.
    """
    dialect: str = ""
    """Name of its variant of the wire, in that wire's table of dialects."""

    @property
    def info(self) -> ModelInfo:
        """Name, price, limits and output mode of the model, as the rest of the runtime needs them."""
        mode: OutputMode = "native" if self.output == "schema" else ("tool" if self.tools == "native" else "prompted")
        return ModelInfo(self.model, self.provider, self.price, self.context_tokens, self.max_output_tokens, mode)

    def is_author(self, provider: str, model: str) -> bool:
        """Return True if a message recorded with this provider and model was written by this model."""
        return model == self.model and provider == self.provider
