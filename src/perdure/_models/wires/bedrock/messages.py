"""Encode messages as lists of content blocks of the Converse API (Bedrock). No I/O.

Every message becomes one item that depends on nothing else; `encode` joins adjacent messages of the user.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from perdure._core.values.message import (
    Citation,
    Document,
    Media,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Video,
)
from perdure._models.endpoint.memo import Item
from perdure._models.endpoint.profile import Profile
from perdure._models.wires import attachments
from perdure._models.wires.anthropic.messages import (
    EMPTY_MESSAGE_TEXT,
    CitedPassage,
    ensure_json_object,
    sanitize_tool_name,
    split_cited_text,
)
from perdure._models.wires.tools import CallIdTranslator

from .features import BedrockModelFeatures

Block: TypeAlias = Mapping[str, Any]

DOCUMENT_ONLY_TEXT = "(see the document)"
"""Text added to a document without text, which would be refused."""

_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_VIDEOS = {
    "video/mp4": "mp4",
    "video/quicktime": "mov",
    "video/webm": "webm",
    "video/x-matroska": "mkv",
    "video/mpeg": "mpeg",
    "video/x-flv": "flv",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
is_call_id = re.compile(r"[A-Za-z0-9_.:-]{1,64}").fullmatch
"""Match the ids of calls that the provider accepts."""
_NOT_IN_A_TITLE = re.compile(r"[^A-Za-z0-9()\[\]-]+")
_MAX_TITLE_LENGTH = 100


def build_message_encoder(
    messages: Sequence[Message],
    profile: Profile,
    features: BedrockModelFeatures,
    *,
    echo: bool,
    citations: bool = False,
) -> Callable[[Message], Sequence[Item]]:
    """Return a function that encodes one message of a conversation for the Converse API (Bedrock).

    Unless `echo`, the model's earlier thinking is left out.

    With `citations`, the model is asked to cite documents.
    """
    ids = CallIdTranslator(messages, profile, is_valid=is_call_id)

    def encode_message(message: Message) -> Sequence[Item]:
        ids.enter(message)
        if message.role == "assistant":
            own = profile.is_author(message.provider, message.model)
            parts = split_cited_text(message.parts) if message.provider == profile.provider else message.parts
            content = _encode_assistant_parts(parts, ids, own=own, echo=echo)
            return [{"role": "assistant", "content": content}] if content else []
        content = [block for part in message.parts for block in _encode_user_part(part, profile, features, ids)]
        if citations:
            content = [_ask_for_citations(block) for block in content]
        return [{"role": "user", "content": _ensure_text(content)}]

    return encode_message


def _ensure_text(content: list[Block]) -> list[Block]:
    if not content:
        return [{"text": EMPTY_MESSAGE_TEXT}]
    if any("document" in block for block in content) and not any("text" in block for block in content):
        return [*content, {"text": DOCUMENT_ONLY_TEXT}]
    return content


# -- assistant messages ------------------------------------------------------------------------------------------------


def _encode_assistant_parts(
    parts: Iterable[Part | CitedPassage], ids: CallIdTranslator, *, own: bool, echo: bool
) -> list[Block]:
    content: list[Block] = []
    for part in parts:
        match part:
            case CitedPassage(text=text, citations=cited):
                told = [each.details for each in cited]
                content.append({"citationsContent": {"content": [{"text": text}], "citations": told}})
            case Text(text=text):
                if text.strip():  # blank ones are refused
                    content.append({"text": text})
            case ToolCall():
                name, given = sanitize_tool_name(part.name), ensure_json_object(part.arguments)
                content.append({"toolUse": {"toolUseId": ids.encode_id(part.call_id), "name": name, "input": given}})
            case Thinking():
                thought = _encode_thinking(part, echo=echo) if own else None
                if thought is not None:
                    content.append(thought)
            case Media():
                content.append(
                    {
                        "text": attachments.describe_unsupported_media(
                            part, "made by the model, and not shown to it again"
                        )
                    }
                )
            case ToolResult() | Citation():  # never in an assistant message; of another provider
                pass
    while content and "reasoningContent" in content[-1]:  # refused there; so ends a reply that got too long
        content.pop()
    return content


def _encode_thinking(part: Thinking, *, echo: bool) -> Block | None:
    """Encode a thinking part. Only signed or encrypted thinking is sent back; other models refuse it."""
    if part.details:  # a block of a tool that the provider runs, or of an unknown type
        return part.details
    if not echo:
        return None
    if part.data:
        return {"reasoningContent": {"redactedContent": part.data}}
    if part.signature:
        return {"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}
    return None


# -- user messages and results -----------------------------------------------------------------------------------------


def _encode_user_part(
    part: Part, profile: Profile, dialect: BedrockModelFeatures, ids: CallIdTranslator
) -> Sequence[Block]:
    match part:
        case Text(text=text):
            return [{"text": text}] if text.strip() else []
        case Media():
            return [_encode_media(part, profile)]
        case ToolResult():
            return [_encode_result(part, profile, dialect, ids)]
        case _:  # thinking and calls are never in a user message
            return []


def _ask_for_citations(block: Block) -> Block:
    """Return a block with citations enabled for its documents: the provider requires it for all or none."""
    if "document" in block:
        return {"document": {**block["document"], "citations": {"enabled": True}}}
    if "toolResult" in block:
        result = block["toolResult"]
        return {"toolResult": {**result, "content": [_ask_for_citations(each) for each in result["content"]]}}
    return block


def _encode_result(result: ToolResult, profile: Profile, dialect: BedrockModelFeatures, ids: CallIdTranslator) -> Block:
    content = [block for part in result.content for block in _encode_user_part(part, profile, dialect, ids)]
    block: dict[str, Any] = {"toolUseId": ids.encode_id(result.call_id), "content": content}
    if result.is_error and dialect.status:
        block["status"] = "error"
    elif result.is_error:
        content.insert(0, {"text": f"({result.status})"})
    if not content:
        content.append({"text": f"({result.status})" if result.is_error else "(no output)"})
    return {"toolResult": block}


def _encode_media(media: Media, profile: Profile) -> Block:
    seen = attachments.normalize_media(media)
    if attachments.is_image(seen):
        return _encode_media_block("image", seen, _IMAGES, able=profile.images) or _describe_media(
            media, seen, able=profile.images
        )
    if isinstance(seen, Video):
        return _encode_media_block("video", seen, _VIDEOS, able=profile.video) or _describe_media(
            media, seen, able=profile.video
        )
    if not isinstance(seen, Document):
        return _describe_media(media, seen, able=False)
    return _encode_document(seen, profile) or _describe_media(media, seen, able=profile.documents)


def _describe_media(media: Media, seen: Media, *, able: bool) -> Block:
    """Return a text note for media that cannot be sent, such as a URL, which Bedrock does not fetch."""
    if able and seen.data:
        return {
            "text": attachments.describe_unsupported_media(
                media, f"this model cannot take {seen.media_type or 'files of an unknown type'}"
            )
        }
    return {
        "text": attachments.describe_unsupported_media(media, "this model cannot be given an address" if able else "")
    }


def _build_source(media: Media) -> Block | None:
    if media.data:
        return {"bytes": attachments.encode_base64(media)}
    return {"s3Location": {"uri": media.url}} if media.url.startswith("s3://") else None


def _encode_media_block(kind: str, media: Media, formats: Mapping[str, str], *, able: bool) -> Block | None:
    source, form = _build_source(media), formats.get(media.media_type)
    return {kind: {"format": form, "source": source}} if able and source and form else None


def _encode_document(document: Document, profile: Profile) -> Block | None:
    words = attachments.decode_text_document(document)
    form = _DOCUMENTS.get(document.media_type) or ("txt" if words is not None else None)
    source = _build_source(document)
    if profile.documents and source and form:
        return {"document": {"format": form, "name": sanitize_document_name(document), "source": source}}
    if words is not None and words.strip():
        return {"text": f"[document {document.name}]\n{words}" if document.name else words}
    return None


def sanitize_document_name(document: Document) -> str:
    """Return a name for a document that the Converse API accepts: other characters replaced, and cut to its limit.

    `encode` makes the names unique.
    """
    return _NOT_IN_A_TITLE.sub(" ", document.name).strip()[:_MAX_TITLE_LENGTH].rstrip() or "document"
