"""What an endpoint can do, and how it wants to be asked. Above: wires, the catalogue, `perdure probe`. Below: `core`.

A profile is data. The catalogue has one for each provider it knows, a probe writes one for an endpoint that it does
not, and a wire reads nothing else: a quirk that is not in a profile does not exist.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from perdure.core.model import ModelInfo, OutputMode, Price

ToolMode: TypeAlias = Literal["native", "json", "none"]
"""Calls are a part of the wire; calls are JSON that a model is held to (`json_tools`); or there are none."""
CacheMode: TypeAlias = Literal["automatic", "marked", "none"]
"""The provider caches by itself; it caches up to where it is told; or it does not cache."""


class Profile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model at one endpoint."""

    provider: str
    """Who serves it. With `model`, this is the author of what it writes: only the author gets its thinking back."""
    model: str
    """What the provider calls it."""
    context_tokens: int | None = None
    """How much it can read at once."""
    max_output_tokens: int | None = None
    """How much it can write at once."""
    price: Price | None = None
    """What it costs, when that is known."""
    tools: ToolMode = "native"
    """How it calls tools."""
    parallel_tool_calls: bool = True
    """Whether it can be told to make one call at a time."""
    strict_tools: bool = False
    """Whether it can be held to the schemas of tools."""
    output: Literal["schema", "object", "none"] = "schema"
    """What its replies can be held to: a JSON Schema; any JSON object; nothing."""
    schema: str = "plain"
    """Which JSON Schema it understands: a name in `schemas.py`."""
    images: bool = True
    documents: bool = False
    audio: bool = False
    video: bool = False
    """What it can look at besides text. Anything else is told to it in a note."""
    cache: CacheMode = "automatic"
    """How its prompt cache is used."""
    streams: bool = True
    """Whether it can stream."""
    usage_in_stream: bool = True
    """Whether it can be asked for its usage in a stream."""
    dialect: str = ""
    """How it differs from others that speak the same wire: a name in that wire's table."""

    @property
    def info(self) -> ModelInfo:
        """What the rest of the runtime knows about it."""
        mode: OutputMode = "native" if self.output == "schema" else ("tool" if self.tools == "native" else "prompted")
        return ModelInfo(self.model, self.provider, self.price, self.context_tokens, self.max_output_tokens, mode)

    def wrote(self, provider: str, model: str) -> bool:
        """Whether a message of this author is its own."""
        return model == self.model and provider == self.provider
