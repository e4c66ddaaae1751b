# Written by `python -m scripts.exports`, from the table in models.py. Not edited by hand.

from ._core.model.budget import Reservation as Reservation
from ._core.model.budget import budgeted as budgeted
from ._core.model.failover import failover as failover
from ._core.model.protocol import CacheLife as CacheLife
from ._core.model.protocol import Effort as Effort
from ._core.model.protocol import Model as Model
from ._core.model.protocol import ModelInfo as ModelInfo
from ._core.model.protocol import OutputMode as OutputMode
from ._core.model.protocol import Price as Price
from ._core.model.protocol import Request as Request
from ._core.model.protocol import ShortenRequest as ShortenRequest
from ._core.model.protocol import ThinkingMode as ThinkingMode
from ._core.model.protocol import ToolSpec as ToolSpec
from ._core.model.protocol import assemble_reply as assemble_reply
from ._core.model.protocol import model_info as model_info
from ._core.model.wrappers import compacted as compacted
from ._core.model.wrappers import gated as gated
from ._core.model.wrappers import observed as observed
from ._core.model.wrappers import retried as retried
from ._io.http.pooled import HttpTransport as HttpTransport
from ._io.http.tap import Tap as Tap
from ._io.http.tap import TappedRequest as TappedRequest
from ._io.http.tap import tap_models as tap_models
from ._io.http.tap import tapped as tapped
from ._io.http.transport import Deadlines as Deadlines
from ._io.http.transport import Response as Response
from ._io.http.transport import Transport as Transport
from ._models.catalogue.status import ProviderStatus as ProviderStatus
from ._models.endpoint.auth import Auth as Auth
from ._models.endpoint.auth import FixedHeaders as FixedHeaders
from ._models.endpoint.http_model import HttpModel as HttpModel
from ._models.endpoint.json_tools import json_tools as json_tools
from ._models.endpoint.memo import EncodingMemo as EncodingMemo
from ._models.endpoint.profile import Profile as Profile
from ._models.endpoint.think_tags import with_think_tags as with_think_tags
from ._models.endpoint.throttle import Throttle as Throttle
from ._models.endpoint.throttle import set_api_key_limits as set_api_key_limits
from ._models.endpoint.wire import Decoder as Decoder
from ._models.endpoint.wire import EncodedRequest as EncodedRequest
from ._models.endpoint.wire import Wire as Wire
from ._models.endpoint.wire import load_wire as load_wire
from ._models.local import open_local as open_local
from ._models.probe.endpoint import ProbeResult as ProbeResult
from ._models.probe.endpoint import probe as probe
from ._models.registry import ModelFactory as ModelFactory
from ._models.registry import list_provider_statuses as list_provider_statuses
from ._models.registry import open_model as open_model
from ._models.registry import openai_compatible as openai_compatible
from ._models.registry import price_of as price_of
from ._models.registry import providers as providers
from ._models.registry import register as register
from ._models.registry import set_price as set_price
from ._models.wires.openai_chat.settings import ReasoningProfile as ReasoningProfile
from ._models.wires.openai_chat.settings import add_template_kwargs as add_template_kwargs
from ._models.wires.openai_chat.settings import build_template_kwargs as build_template_kwargs
from ._models.wires.openai_chat.settings import find_reasoning_profile as find_reasoning_profile

__all__ = [
    "Auth",
    "CacheLife",
    "Deadlines",
    "Decoder",
    "Effort",
    "EncodedRequest",
    "EncodingMemo",
    "FixedHeaders",
    "HttpModel",
    "HttpTransport",
    "Model",
    "ModelFactory",
    "ModelInfo",
    "OutputMode",
    "Price",
    "ProbeResult",
    "Profile",
    "ProviderStatus",
    "ReasoningProfile",
    "Request",
    "Reservation",
    "Response",
    "ShortenRequest",
    "Tap",
    "TappedRequest",
    "ThinkingMode",
    "Throttle",
    "ToolSpec",
    "Transport",
    "Wire",
    "add_template_kwargs",
    "assemble_reply",
    "budgeted",
    "build_template_kwargs",
    "compacted",
    "failover",
    "find_reasoning_profile",
    "gated",
    "json_tools",
    "list_provider_statuses",
    "load_wire",
    "model_info",
    "observed",
    "open_local",
    "open_model",
    "openai_compatible",
    "price_of",
    "probe",
    "providers",
    "register",
    "retried",
    "set_api_key_limits",
    "set_price",
    "tap_models",
    "tapped",
    "with_think_tags",
]
