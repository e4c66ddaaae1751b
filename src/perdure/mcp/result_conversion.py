"""Convert the result of an MCP tool, or the contents of an MCP resource, to message parts that a model can read."""

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.core.message import Audio, Document, Image, ResultPart, Text
from perdure.core.schema import Invalid, check_value
from perdure.core.tool import ToolOutput

from .listed_tool import ListedTool, clean_text

if TYPE_CHECKING:
    import mcp_types

MAX_MEDIA_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one picture, recording or file in a result."""
_MAX_URI: Final = 2_000


def convert_tool_result(tool: ListedTool, result: "mcp_types.CallToolResult") -> ToolOutput:
    """Convert the result of an MCP tool to a `ToolOutput`: its texts and media, or else its structured content as JSON.

    Structured content that does not match the tool's own schema is an error. A user interface gets it as data.
    """
    parts = [part for each in result.content for part in _convert_content(each)]
    structured = result.structured_content
    is_error = bool(result.is_error)
    if structured is not None and tool.output_schema is not None and not is_error:
        try:
            check_value(structured, tool.output_schema)
        except Invalid as problem:
            parts.insert(
                0, Text(f"[The structured result does not match the tool's schema: {clean_text(str(problem))}]")
            )
            is_error = True
    if structured is not None and not parts:
        parts = [Text(msgspec.json.encode(structured).decode())]
    return ToolOutput(content=parts or "(no content)", render=structured, is_error=is_error)


def convert_resource(contents: Any) -> list[ResultPart]:
    """Convert the contents of an MCP resource to message parts: a text, or a media file."""
    uri = clean_text(str(getattr(contents, "uri", "")))[:_MAX_URI]
    text = getattr(contents, "text", None)
    if isinstance(text, str):
        return [Text(text)]
    media_type = str(getattr(contents, "mime_type", "") or "application/octet-stream")
    return [_decode_media(getattr(contents, "blob", ""), media_type, uri)]


def _convert_content(block: Any) -> list[ResultPart]:
    kind = getattr(block, "type", "")
    if kind == "text":
        return [Text(block.text)]
    if kind in {"image", "audio"}:
        return [_decode_media(block.data, str(block.mime_type), kind)]
    if kind == "resource":
        return convert_resource(block.resource)
    if kind == "resource_link":  # never followed: the model may ask for it by its address
        return [Text(f"[resource {clean_text(str(block.uri))[:_MAX_URI]} ({clean_text(str(block.name))[:200]})]")]
    return [Text(f"[content of the unknown kind {clean_text(str(kind))[:80]!r}]")]


def _decode_media(data: object, media_type: str, name: str) -> ResultPart:
    """Return base64 data as a part; a note in its place if it is too large or broken."""
    if not isinstance(data, str) or len(data) > MAX_MEDIA_BYTES * 4 // 3 + 4:
        return Text(f"[{name} of type {clean_text(media_type)[:80]} was left out: it is too large]")
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[{name} of type {clean_text(media_type)[:80]} was left out: it is no base64]")
    family = media_type.partition("/")[0]
    if family == "image":
        return Image(data=content, media_type=media_type)
    if family == "audio":
        return Audio(data=content, media_type=media_type)
    return Document(data=content, media_type=media_type)
