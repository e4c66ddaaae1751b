"""A request as chat completions say it. Pure. Above: the wire. Below: `items.py`, `asking.py`, `tools.py`, `memo.py`.

The conversation is encoded message by message and kept by the memo; what stands around it is encoded anew each time,
but for the tools, which are kept as well. So a request costs the same at any length of the conversation.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from perdure.core.error import ConfigError
from perdure.core.message import Message
from perdure.core.model import OutputSpec, Request, Settings
from perdure.models.memo import Memo, encoded
from perdure.models.profile import Profile
from perdure.models.schemas import can_be_strict, compiled, lenient
from perdure.models.wire import Sending

from .asking import asked
from .content import text_item
from .dialect import Dialect, dialect_of
from .items import Writer
from .lint import rules_of
from .tools import tools_of

PATH = "/chat/completions"
LONGEST_NAME = 64
"""How long the name of a schema may be."""

_USER = b'{"role":"user"'


def encode(request: Request, profile: Profile, memo: Memo) -> Sending:
    """The bytes to be posted. Raises `BrokenRule` when the conversation would be refused."""
    settings = request.settings
    dialect = dialect_of(profile.dialect)
    writer = Writer(profile, dialect, echo=settings.echo_reasoning)
    name = (request.session_id, profile.model, settings.echo_reasoning) if request.session_id else None
    pieces = memo.pieces(name, request.messages, writer.items, rules_of(profile.dialect))
    mark = _mark(settings, profile)
    if mark is not None:
        _mark_last_user(pieces, request.messages, writer, mark)
    if request.instructions:
        pieces.insert(0, encoded(_instructions(request.instructions, profile, dialect, mark)))
    head = encoded(_head(request, profile, dialect))
    return Sending(PATH, b'{"messages":[%b],%b' % (b",".join(pieces), head[1:]))


def _instructions(text: str, profile: Profile, dialect: Dialect, mark: Mapping[str, str] | None) -> dict[str, Any]:
    content = text if mark is None else [{**text_item(text), "cache_control": mark}]
    return {"role": dialect.instructions_role(profile.model), "content": content}


# -- what is cached ----------------------------------------------------------------------------------------------------


def _mark(settings: Settings, profile: Profile) -> Mapping[str, str] | None:
    """What says that everything up to here is to be cached; nothing where that goes without saying."""
    if profile.cache != "marked" or settings.cache == "off":
        return None
    return {"type": "ephemeral", "ttl": "1h"} if settings.cache == "1h" else {"type": "ephemeral"}


def _mark_last_user(pieces: list[bytes], messages: Sequence[Message], writer: Writer, mark: Mapping[str, str]) -> None:
    """Mark what the user said last. It is encoded anew: what the memo keeps has no marks."""
    message = next((each for each in reversed(messages) if each.role == "user"), None)
    place = next((place for place in range(len(pieces) - 1, -1, -1) if pieces[place].startswith(_USER)), None)
    if message is None or place is None:
        return
    item = writer.items(message)[0]
    content: Any = item["content"]
    items: list[dict[str, Any]] = [text_item(content)] if isinstance(content, str) else list(content)
    for number in range(len(items) - 1, -1, -1):
        if items[number]["type"] == "text":
            items[number] = {**items[number], "cache_control": mark}
            break
    pieces[place] = encoded({**item, "content": items})


# -- what stands around the conversation -------------------------------------------------------------------------------


def _head(request: Request, profile: Profile, dialect: Dialect) -> dict[str, Any]:
    settings = request.settings
    head: dict[str, Any] = {"model": profile.model, "stream": profile.streams, **dialect.always}
    if profile.streams and profile.usage_in_stream and not dialect.usage_unasked:
        head["stream_options"] = {"include_usage": True}
    if request.tools and profile.tools == "native":
        head["tools"] = tools_of(request.tools, profile)
        head.update(_choice(request, profile, dialect))
    if request.output is not None and profile.output != "none":
        head["response_format"] = _format(request.output, profile)
    head.update(asked(settings, profile, dialect))
    return _extended(head, settings.extra_body) if settings.extra_body else head


def _choice(request: Request, profile: Profile, dialect: Dialect) -> dict[str, Any]:
    """Which tool has to be called, and how many at once."""
    said: dict[str, Any] = {}
    match request.settings.tool_choice:
        case None:
            pass
        case "required":
            said["tool_choice"] = dialect.required
        case "auto" | "none" as choice:
            said["tool_choice"] = choice
        case name:
            said["tool_choice"] = {"type": "function", "function": {"name": _known(name, request)}}
    if request.settings.parallel_tool_calls is not None and profile.parallel_tool_calls:
        said["parallel_tool_calls"] = request.settings.parallel_tool_calls
    return said


def _known(name: str, request: Request) -> str:
    names = [tool.name for tool in request.tools]
    if name not in names:
        known = ", ".join(map(repr, names))
        message = f"Settings(tool_choice={name!r}): no such tool; use 'auto', 'none', 'required', or one of {known}"
        raise ConfigError(message)
    return name


def _format(output: OutputSpec, profile: Profile) -> dict[str, Any]:
    if profile.output == "object":
        return {"type": "json_object"}
    is_strict = profile.schema == "openai_strict" and can_be_strict(output.schema)
    schema: dict[str, Any] = {
        "name": re.sub(r"[^A-Za-z0-9_-]", "_", output.name)[:LONGEST_NAME] or "output",
        "schema": compiled(output.schema, profile.schema if is_strict else lenient(profile.schema)),
        "strict": is_strict,
    }
    if output.description:
        schema["description"] = output.description
    return {"type": "json_schema", "json_schema": schema}


def _extended(head: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The head with what the caller adds: mappings are merged, tools are added, anything else is replaced."""
    if "messages" in extra:
        message = "extra_body: 'messages' are made from the conversation; take them out, and add to the prompt instead"
        raise ConfigError(message)
    both = dict(head)
    for name, value in extra.items():
        had = both.get(name)
        if isinstance(had, msgspec.Raw) and isinstance(value, (list, tuple)) and value:
            more = encoded(list(cast("list[Any]", value)))
            both[name] = msgspec.Raw(bytes(had)[:-1] + b"," + more[1:])
        elif isinstance(had, dict) and isinstance(value, Mapping):
            both[name] = {**cast("dict[str, Any]", had), **cast("Mapping[str, Any]", value)}
        else:
            both[name] = value
    return both
