"""Models: opened by name, wrapped, and written by yourself. For users, and for authors of providers."""

from ._facade import export

NAMES_BY_MODULE = {
    "._core.model.budget": ("Reservation", "budgeted"),
    "._core.model.failover": ("failover",),
    "._core.model.protocol": (
        "CacheLife",
        "Effort",
        "Model",
        "ModelInfo",
        "OutputMode",
        "Price",
        "Request",
        "ShortenRequest",
        "ThinkingMode",
        "ToolSpec",
        "assemble_reply",
        "model_info",
    ),
    "._core.model.wrappers": ("compacted", "gated", "observed", "retried"),
    "._io.http.pooled": ("HttpTransport",),
    "._io.http.tap": ("Tap", "TappedRequest", "tap_models", "tapped"),
    "._io.http.transport": ("Deadlines", "Response", "Transport"),
    "._models.catalogue.status": ("ProviderStatus",),
    "._models.endpoint.auth": ("Auth", "FixedHeaders"),
    "._models.endpoint.http_model": ("HttpModel",),
    "._models.endpoint.json_tools": ("json_tools",),
    "._models.endpoint.memo": ("EncodingMemo",),
    "._models.endpoint.profile": ("Profile",),
    "._models.endpoint.think_tags": ("with_think_tags",),
    "._models.endpoint.throttle": ("Throttle", "set_api_key_limits"),
    "._models.endpoint.wire": ("Decoder", "EncodedRequest", "Wire", "load_wire"),
    "._models.local": ("open_local",),
    "._models.probe.endpoint": ("ProbeResult", "probe"),
    "._models.registry": (
        "ModelFactory",
        "list_provider_statuses",
        "open_model",
        "openai_compatible",
        "price_of",
        "providers",
        "register",
        "set_price",
    ),
    "._models.wires.openai_chat.settings": (
        "ReasoningProfile",
        "add_template_kwargs",
        "build_template_kwargs",
        "find_reasoning_profile",
    ),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
