"""What an endpoint without tools is asked instead. Pure. Above: `mode.py`. Below: `history.py`, `core`."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from perdure.core.model import OutputSpec, Request, ToolSpec

from .history import Form, Retold, spaced


def asked(request: Request, retold: Retold, *, enforced: bool) -> Request:
    """The same request without tools. `enforced`: the endpoint can hold its reply to a schema."""
    form: Form = "bare" if not request.tools else ("text" if request.output is None else "value")
    messages = [retold(message, form) for message in request.messages]
    if not request.tools:
        return replace(request, messages=messages)
    return replace(
        request,
        messages=messages,
        instructions=described(request.instructions, request.tools, request.output),
        tools=(),
        settings=replace(request.settings, tool_choice=None, parallel_tool_calls=None),
        output=union(request) if enforced else None,
    )


def described(instructions: str, tools: Sequence[ToolSpec], output: OutputSpec | None) -> str:
    """The instructions, with the tools in them. The same tools always give the same text, for the prompt cache."""
    listed = "\n".join([f"{tool.name}: {tool.description} args: {spaced(tool.parameters)}" for tool in tools])
    form = (
        'Reply with one JSON object and nothing else. To use a tool: {"tool": NAME, "args": {...}}. To answer, when no '
        'tool is needed or when its result is known: {"final": '
    )
    form += "TEXT}." if output is None else f"VALUE}}, where VALUE is JSON of this schema: {spaced(output.schema)}"
    return "\n\n".join([part for part in (instructions, f"Tools:\n{listed}", form) if part])


def union(request: Request) -> OutputSpec:
    """What the reply may be: a call of one of the tools that may be called, or the answer."""
    choice = request.settings.tool_choice or "auto"
    definitions: dict[str, Any] = {}
    forms = [_call_form(tool, definitions) for tool in request.tools if choice in {"auto", "required", tool.name}]
    if choice in {"auto", "none"} or not forms:
        answer = {"type": "string"} if request.output is None else _hoisted(request.output.schema, "final", definitions)
        forms.append(_object({"final": answer}))
    schema: dict[str, Any] = {"anyOf": forms} if len(forms) > 1 else forms[0]
    if definitions:
        schema["$defs"] = definitions
    return OutputSpec("reply", schema, "A call of a tool, or the answer.")


def _call_form(tool: ToolSpec, definitions: dict[str, Any]) -> dict[str, Any]:
    args = _hoisted(tool.parameters, f"args_of_{tool.name}", definitions)
    return _object({"tool": {"const": tool.name}, "args": args})


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _hoisted(schema: Mapping[str, Any], name: str, definitions: dict[str, Any]) -> Mapping[str, Any]:
    """A schema as a part of another one. One that refers to itself is moved to a place that has an address."""
    root = f"#/$defs/{name}"
    moved: Mapping[str, Any] = _readdressed(schema, root)
    if moved is schema:
        return schema
    definitions[name] = moved
    return {"$ref": root}


def _readdressed(schema: Any, root: str) -> Any:
    """The schema with its references from another root; the very same object when it has none."""
    if isinstance(schema, (list, tuple)):
        items = cast("Sequence[Any]", schema)
        moved = [_readdressed(item, root) for item in items]
        return moved if any(new is not old for new, old in zip(moved, items, strict=True)) else items
    if not isinstance(schema, Mapping):
        return schema
    fields = cast("Mapping[str, Any]", schema)
    changed = {key: new for key, old in fields.items() if (new := _readdressed(old, root)) is not old}
    reference = fields.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        changed["$ref"] = root + reference[1:]
    return {**fields, **changed} if changed else fields
