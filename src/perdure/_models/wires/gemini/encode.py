"""Encode a model request, its messages and their media as the body of a `generateContent` call. No I/O."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import msgspec

from perdure._core.model.protocol import OutputSpec, Request, Settings, ToolSpec
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import replace_surrogates
from perdure._core.values.message import (
    Audio,
    Document,
    Image,
    Media,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Video,
    parts_to_text,
)
from perdure._models.endpoint.memo import EncodingMemo, Item, encode_lossy_json
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import EncodedRequest
from perdure._models.schemas.compile import compile_schema
from perdure._models.wires.attachments import (
    decode_text_document,
    describe_unsupported_media,
    encode_base64,
    normalize_media,
)
from perdure._models.wires.message_order import CONTINUE_MESSAGE
from perdure._models.wires.tools import MAX_TOOL_NAME_LENGTH, CallIdTranslator, sanitize_tool_name

from .features import can_combine_schema_and_tools, encode_thinking, is_signature_required
from .lint import GeminiMessageRules

_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
_is_readable_type = re.compile(r"application/pdf|text/.+").fullmatch
_TYPES_BY_EXTENSION = {
    "png": "image/png",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "mov": "video/quicktime",
    "webm": "video/webm",
    "txt": "text/plain",
    "md": "text/plain",
    "csv": "text/csv",
    "html": "text/html",
}
"""Media type by file extension, where it is not the usual one."""
_DEFAULT_TYPES: dict[type, str] = {
    Image: "image/jpeg",
    Audio: "audio/wav",
    Video: "video/mp4",
    Document: "application/pdf",
}
"""Default media type of each class."""

_is_fetchable_url = re.compile(r"(?:https?|gs)://.+|files/.+", re.DOTALL).fullmatch
"""Match URLs that the provider can read. The file id of another provider is not one."""


def encode_media(media: Media, profile: Profile) -> dict[str, Any] | str:
    """Encode media as a part of a Gemini message; if the model does not support the media, as a text note.

    That text is the content of a text document, or a note.
    """
    media = normalize_media(media)
    if not _is_supported(media, profile):
        text = decode_text_document(media) if isinstance(media, Document) else None
        return replace_surrogates(
            describe_unsupported_media(media) if text is None else f"[document {media.name}]\n{text}"
        )
    media_type = _get_media_type(media)
    if isinstance(media, Image) and media_type not in _IMAGE_TYPES:
        return replace_surrogates(describe_unsupported_media(media, f"this model cannot look at {media_type}"))
    if isinstance(media, Document) and not _is_readable_type(media_type):
        if decode_text_document(media) is None:
            return replace_surrogates(describe_unsupported_media(media, f"this model cannot read {media_type}"))
        media_type = "text/plain"
    if media.data:
        return {"inlineData": {"mimeType": media_type, "data": encode_base64(media)}}
    place = replace_surrogates(media.url or media.file_id)
    if not _is_fetchable_url(place):
        return replace_surrogates(describe_unsupported_media(media, "there is nothing that this model could fetch"))
    return {"fileData": {"mimeType": media_type, "fileUri": place}}


def _is_supported(media: Media, profile: Profile) -> bool:
    match media:
        case Image():
            return profile.images
        case Audio():
            return profile.audio
        case Video():
            return profile.video
        case _:
            return profile.documents


def _get_media_type(media: Media) -> str:
    if media.media_type:
        return replace_surrogates(media.media_type)
    if isinstance(media, Document) and decode_text_document(media) is not None:
        return "text/plain"
    ending = re.search(r"\.(\w+)(?:[?#]|$)", media.name or media.url)
    return _TYPES_BY_EXTENSION.get(ending[1].lower() if ending else "", _DEFAULT_TYPES[type(media)])


PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
"""Placeholder for the signature of a call that has none, for models that refuse calls without one."""
EMPTY_MESSAGE_TEXT = "(no text)"
"""Placeholder for an empty message: empty text is refused."""
_MEDIA_TYPES = (Image, Audio, Video, Document)


def insert_user_turns(messages: Sequence[Message]) -> Sequence[Message]:
    """Insert user messages where Gemini requires them: at the start, at the end, and before tool calls."""
    abrupt: list[int] = []
    before = "assistant"  # so that the first message is checked like the others
    for place, message in enumerate(messages):
        role = message.role
        if role == before == "assistant" and (place == 0 or message.tool_calls):
            abrupt.append(place)
        before = role
    ends = bool(messages) and before == "assistant"
    if not abrupt and not ends:
        return messages
    whole = list(messages)
    for place in reversed(abrupt):
        whole.insert(place, CONTINUE_MESSAGE)
    return [*whole, CONTINUE_MESSAGE] if ends else whole


class GeminiMessageEncoder:
    """Encoder of the messages of one model request as `contents`, the messages of the Gemini API.

    It is given the messages in order.
    """

    def __init__(self, messages: Sequence[Message], profile: Profile, *, echo: bool = True) -> None:
        """Set up the encoder; with `echo`, the model gets its own signatures and thoughts back."""
        self.profile = profile
        self.echo = echo
        self._ids = CallIdTranslator(messages, profile)

    def encode_without_ids(self, message: Message) -> list[Item]:
        """Encode one message without the ids of calls and results, which Vertex AI refuses."""
        items = self.encode_message(message)
        for part in [part for item in items for part in item["parts"]]:
            for kind in ("functionCall", "functionResponse"):
                if kind in part:
                    part[kind] = {name: value for name, value in part[kind].items() if name != "id"}
        return items

    def encode_message(self, message: Message) -> list[Item]:
        """Encode the next message as a list of contents: none if it is empty, two for tool results with media."""
        self._ids.enter(message)
        match message.role:
            case "assistant":
                parts = self._encode_assistant_parts(message)
                return [{"role": "model", "parts": parts}] if parts else []
            case "tool":
                return self._encode_results(message.tool_results)
            case _:
                parts = [each for part in message.parts if (each := self._encode_user_part(part)) is not None]
                return [{"role": "user", "parts": parts or [{"text": EMPTY_MESSAGE_TEXT}]}]

    def _encode_user_part(self, part: Part) -> dict[str, Any] | None:
        """Encode a part of a user message; None if it is empty."""
        if isinstance(part, _MEDIA_TYPES):
            return _as_part(encode_media(part, self.profile))
        text = replace_surrogates(parts_to_text([part]))
        return {"text": text} if text else None

    def _encode_assistant_parts(self, message: Message) -> list[dict[str, Any]]:
        """Encode the parts of an assistant message."""
        own = self.echo and self.profile.is_author(message.provider, message.model)
        calls = any(type(part) is ToolCall for part in message.parts)
        said: list[dict[str, Any]] = []
        for part in message.parts:
            match part:
                case Text():
                    _append_part(said, {"text": replace_surrogates(part.text)}, part.signature if own else "")
                case ToolCall():
                    _append_part(said, {"functionCall": self._encode_tool_call(part)}, part.signature if own else "")
                case Thinking() if own:
                    _append_thinking(said, part, with_calls=calls)
                case Image() | Audio() | Video() | Document():
                    said.append(self._encode_assistant_media(part, own=own))
                case _:
                    pass  # the thinking of another model
        if calls and is_signature_required(self.profile.model):
            _sign_first_call(said)
        return said

    def _encode_assistant_media(self, part: Media, *, own: bool) -> dict[str, Any]:
        """Encode media that a model made. Media of another model become a text note, as only the model's own are
        accepted.
        """
        return _as_part(
            encode_media(part, self.profile)
            if own
            else replace_surrogates(describe_unsupported_media(part, "made by another model"))
        )

    def _encode_results(self, results: Sequence[ToolResult]) -> list[Item]:
        """Encode tool results. A result is an object without media, so media follow in a separate content."""
        responses: list[dict[str, Any]] = []
        shown: list[dict[str, Any]] = []
        for result in results:
            lines: list[str] = []
            for part in result.content:
                if isinstance(part, Text):
                    lines.append(replace_surrogates(part.text))
                    continue
                media = encode_media(part, self.profile)
                if isinstance(media, str):
                    lines.append(media)
                else:
                    lines.append(replace_surrogates(describe_unsupported_media(part, "shown below")))
                    shown += [
                        {
                            "text": replace_surrogates(
                                describe_unsupported_media(part, f"from the result of {result.name}")
                            )
                        },
                        media,
                    ]
            responses.append({"functionResponse": self._encode_response(result, "\n".join(lines))})
        items: list[Item] = [{"role": "user", "parts": responses}] if responses else []
        return [*items, {"role": "user", "parts": shown}] if shown else items

    def _encode_tool_call(self, call: ToolCall) -> dict[str, Any]:
        name, given = sanitize_function_name(call.name), _parse_arguments(call.arguments)
        return {"id": self._ids.encode_id(call.call_id), "name": name, "args": given}

    def _encode_response(self, result: ToolResult, text: str) -> dict[str, Any]:
        if result.is_error:
            response = {"error": text or f"The call has ended with the status {result.status.value!r}."}
        else:
            response = {"output": text}
        name = sanitize_function_name(result.name)
        return {"id": self._ids.encode_id(result.call_id), "name": name, "response": response}


def sanitize_function_name(name: str) -> str:
    """Return a function name that Gemini accepts: invalid characters are replaced, and long names are cut."""
    name = sanitize_tool_name(name)
    return name if name[0].isalpha() or name[0] == "_" else f"_{name}"[:MAX_TOOL_NAME_LENGTH]


def _as_part(media: dict[str, Any] | str) -> dict[str, Any]:
    return {"text": media} if isinstance(media, str) else media


def _append_part(said: list[dict[str, Any]], part: dict[str, Any], signature: str) -> None:
    """Append a part with its signature. Empty text is appended only if it has a signature."""
    if signature:
        said.append({**part, "thoughtSignature": signature})
    elif part.get("text") != "":
        said.append(part)


def _append_thinking(said: list[dict[str, Any]], part: Thinking, *, with_calls: bool) -> None:
    """Append a thinking part, or a step of a tool that the provider ran, for the model that wrote it.

    Steps and signatures are sent back on every turn, since they stand for content of that turn; readable thoughts only
    on turns with calls, which continue them.
    """
    if "part" in part.details:
        said.append(part.details["part"])
    elif "of" in part.details:
        if said:
            said[-1] = {**said[-1], "thoughtSignature": part.signature}
    elif with_calls or part.signature:
        _append_part(said, {"text": replace_surrogates(part.text), "thought": True}, part.signature)


def _parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments as an object, the only form the API accepts; other text is wrapped in one."""
    try:
        value: Any = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        value = None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"_raw": replace_surrogates(text)}


def _sign_first_call(said: list[dict[str, Any]]) -> None:
    """Add a placeholder signature to the first call of a turn if it has none, since the provider requires one."""
    for part in said:
        if "functionCall" in part:
            part.setdefault("thoughtSignature", PLACEHOLDER_SIGNATURE)
            return


_TOOL_CHOICE_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_OUTPUT_SCHEMA_RULES = {"gemini": "gemini_json"}
"""Schema rules for replies, by those for parameters: parameters use Gemini's schema language, replies JSON Schema."""
_SEED_MODULUS = 2**31
"""Modulus of a seed: it has to fit a signed 32-bit number."""


def encode(request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
    """Encode a model request as the path and body of a Gemini `generateContent` call."""
    echo = request.settings.echo_reasoning is not False
    name = (request.session_id, echo) if request.session_id else None
    messages = insert_user_turns(request.messages)
    contents = GeminiMessageEncoder(messages, profile, echo=echo)
    encode_message = contents.encode_message if profile.dialect != "vertex" else contents.encode_without_ids
    pieces = memo.encode_messages(name, messages, encode_message, GeminiMessageRules(profile.model), CONTINUE_MESSAGE)
    head = encode_lossy_json(_merge_extra_body(_build_body_fields(request, profile), request.settings.extra_body))
    comma = b"," if len(head) > len(b"{}") else b""
    return EncodedRequest(_build_path(profile), b'{"contents":[' + b",".join(pieces) + b"]" + comma + head[1:])


def _build_path(profile: Profile) -> str:
    model = quote(profile.model if "/" in profile.model else f"models/{profile.model}", safe="/:@")
    return f"/{model}:streamGenerateContent?alt=sse" if profile.streams else f"/{model}:generateContent"


def _build_body_fields(request: Request, profile: Profile) -> dict[str, Any]:
    """Return all body fields except the conversation. Settings without a value are left out."""
    functions = profile.tools == "native" and bool(request.tools)
    told = request.output if functions and not can_combine_schema_and_tools(profile.model) else None
    parts = [{"text": text} for text in (replace_surrogates(request.instructions), _describe_schema(told)) if text]
    head: dict[str, Any] = {"systemInstruction": {"parts": parts}} if parts else {}
    if functions:
        head["tools"] = [{"functionDeclarations": [_encode_tool(tool, profile) for tool in request.tools]}]
        head |= _encode_tool_choice(request.settings)
    config = _encode_settings(request.settings, profile)
    if request.output is not None and told is None:
        config |= _encode_response_format(request.output, profile)
    return {**head, "generationConfig": config} if config else head


def _encode_tool(tool: ToolSpec, profile: Profile) -> dict[str, Any]:
    declared: dict[str, Any] = {
        "name": sanitize_function_name(tool.name),
        "description": replace_surrogates(tool.description),
    }
    parameters = compile_schema(tool.parameters, profile.schema)
    if parameters.get("properties"):  # an object without any is refused
        declared["parameters"] = parameters
    return declared


def _encode_tool_choice(settings: Settings) -> dict[str, Any]:
    choice = settings.tool_choice
    if choice is None:
        return {}
    config: dict[str, Any] = {"mode": _TOOL_CHOICE_MODES.get(choice, "ANY")}
    if choice not in _TOOL_CHOICE_MODES:
        config["allowedFunctionNames"] = [sanitize_function_name(choice)]
    return {"toolConfig": {"functionCallingConfig": config}}


def _encode_settings(settings: Settings, profile: Profile) -> dict[str, Any]:
    config: dict[str, Any] = {
        "temperature": settings.temperature,
        "topP": settings.top_p,
        "maxOutputTokens": settings.max_output_tokens,
        "stopSequences": list(settings.stop_sequences) or None,
        "seed": None if settings.seed is None else settings.seed % _SEED_MODULUS,
        "thinkingConfig": encode_thinking(settings, profile.model) or None,
    }
    return {name: value for name, value in config.items() if value is not None}


def _encode_response_format(output: OutputSpec, profile: Profile) -> dict[str, Any]:
    """Return the body fields that make the provider enforce an output schema, or at least JSON."""
    held: dict[str, Any] = {"responseMimeType": "application/json"}
    if profile.output == "schema":
        held["responseJsonSchema"] = compile_schema(
            output.schema, _OUTPUT_SCHEMA_RULES.get(profile.schema, profile.schema)
        )
    return held


def _describe_schema(output: OutputSpec | None) -> str:
    """Return instructions that describe the output schema, for models that refuse functions together with a schema."""
    if output is None:
        return ""
    schema = msgspec.json.encode(output.schema).decode()
    return f"When you answer, rather than call a function, answer with nothing but JSON of this schema:\n{schema}"


def _merge_extra_body(head: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `extra_body` into the fields: objects are merged, tools are appended, other values are replaced."""
    if "contents" in extra:
        raise ConfigError("Settings(extra_body={'contents': …}): it is made from the messages; leave it out")
    merged = _merge_mappings(head, extra)
    if "tools" in head and isinstance(extra.get("tools"), (list, tuple)):
        merged["tools"] = [*head["tools"], *extra["tools"]]
    return merged


def _merge_mappings(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(one)
    for key, value in other.items():
        known = merged.get(key)
        if isinstance(known, dict) and isinstance(value, Mapping):
            merged[key] = _merge_mappings(cast("dict[str, Any]", known), cast("Mapping[str, Any]", value))
        else:
            merged[key] = value
    return merged
