"""Convert a request with tools to one without, for endpoints that do not support tools. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from perdure.core.model import OutputSpec, Request, ToolSpec

from .history_rewriter import AnswerForm, MessageRewriter, encode_spaced_json


def build_toolless_request(request: Request, rewrite_message: MessageRewriter, *, enforced: bool) -> Request:
    """Return a request without tools, whose instructions describe the tools and how to call them by writing JSON.

    If `enforced`, the request also has an output schema that the reply must match.
    """
    form: AnswerForm = "bare" if not request.tools else ("text" if request.output is None else "value")
    messages = [rewrite_message(message, form) for message in request.messages]
    if not request.tools:
        return replace(request, messages=messages)
    return replace(
        request,
        messages=messages,
        instructions=add_tools_to_instructions(request.instructions, request.tools, request.output),
        tools=(),
        settings=replace(request.settings, tool_choice=None, parallel_tool_calls=None),
        output=build_reply_schema(request) if enforced else None,
    )


def add_tools_to_instructions(instructions: str, tools: Sequence[ToolSpec], output: OutputSpec | None) -> str:
    """Append descriptions of the tools to the instructions. Equal tools give equal text, for the prompt cache."""
    listed = "\n".join(
        [f"{tool.name}: {tool.description} args: {encode_spaced_json(tool.parameters)}" for tool in tools]
    )
    form = (
        'Reply with one JSON object and nothing else. To use a tool: {"tool": NAME, "args": {...}}. To answer, when no '
        'tool is needed or when its result is known: {"final": '
    )
    form += (
        "TEXT}."
        if output is None
        else f"VALUE}}, where VALUE is JSON of this schema: {encode_spaced_json(output.schema)}"
    )
    return "\n\n".join([part for part in (instructions, f"Tools:\n{listed}", form) if part])


def build_reply_schema(request: Request) -> OutputSpec:
    """Build the JSON Schema of a reply in JSON tool mode: a call of one of the allowed tools, or the answer."""
    choice = request.settings.tool_choice or "auto"
    definitions: dict[str, Any] = {}
    forms = [
        _build_call_schema(tool, definitions) for tool in request.tools if choice in {"auto", "required", tool.name}
    ]
    if choice in {"auto", "none"} or not forms:
        answer = (
            {"type": "string"} if request.output is None else _embed_schema(request.output.schema, "final", definitions)
        )
        forms.append(_build_object_schema({"final": answer}))
    schema: dict[str, Any] = {"anyOf": forms} if len(forms) > 1 else forms[0]
    if definitions:
        schema["$defs"] = definitions
    return OutputSpec("reply", schema, "A call of a tool, or the answer.")


def _build_call_schema(tool: ToolSpec, definitions: dict[str, Any]) -> dict[str, Any]:
    args = _embed_schema(tool.parameters, f"args_of_{tool.name}", definitions)
    return _build_object_schema({"tool": {"const": tool.name}, "args": args})


def _build_object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _embed_schema(schema: Mapping[str, Any], name: str, definitions: dict[str, Any]) -> Mapping[str, Any]:
    """Embed a schema in another one. A schema with internal references is moved to `$defs`, and referenced."""
    root = f"#/$defs/{name}"
    moved: Mapping[str, Any] = _rebase_references(schema, root)
    if moved is schema:
        return schema
    definitions[name] = moved
    return {"$ref": root}


def _rebase_references(schema: Any, root: str) -> Any:
    """Rewrite the references of a schema to another root; return the same object if it has none."""
    if isinstance(schema, (list, tuple)):
        items = cast("Sequence[Any]", schema)
        moved = [_rebase_references(item, root) for item in items]
        return moved if any(new is not old for new, old in zip(moved, items, strict=True)) else items
    if not isinstance(schema, Mapping):
        return schema
    fields = cast("Mapping[str, Any]", schema)
    changed = {key: new for key, old in fields.items() if (new := _rebase_references(old, root)) is not old}
    reference = fields.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        changed["$ref"] = root + reference[1:]
    return {**fields, **changed} if changed else fields
