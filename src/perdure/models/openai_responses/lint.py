"""What a provider of the Responses wire would refuse, told offline of a whole body. Pure. Above: the wire, tests.
Below: `rules.py`, `dialect.py`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.models.memo import BrokenRule
from perdure.models.profile import Profile
from perdure.models.schemas import violations
from perdure.models.untrusted import mapping, mappings

from .dialect import LONGEST_CACHE_KEY, Dialect, dialect_of
from .rules import CALLS, OUTPUTS, Rules

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_NAME_RULE = "is not 1 to 64 letters, digits, '_' or '-'"
_ENCRYPTED = "reasoning.encrypted_content"


def lint(body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
    """Which rules a whole body breaks, each in a sentence."""
    dialect = dialect_of(profile)
    return [*_input(body, dialect), *_tools(body), *_choice(body), *_output(body), *_settings(body, dialect)]


def _input(body: Mapping[str, Any], dialect: Dialect) -> Iterator[str]:
    given = body.get("input")
    if isinstance(given, str) and given:
        return
    items = mappings(given)
    yield from _order(items, dialect, kept=bool(body.get("previous_response_id") or body.get("conversation")))
    yield from _repeated([each.get("call_id") for each in items if each.get("type") in CALLS], "call_id")
    yield from _repeated([each.get("id") for each in items], "id")
    if body.get("store") is False:
        yield from _unkept(items)


def _order(items: Sequence[Mapping[str, Any]], dialect: Dialect, *, kept: bool) -> Iterator[str]:
    """`kept`: the provider has the beginning of the conversation, and with it the calls of the first results."""
    rules = Rules(dialect)
    state = rules.begin()
    try:
        for item in items:
            if not (kept and item.get("type") in OUTPUTS):
                state = rules.step(state, item)
        rules.end(state)
    except BrokenRule as broken:
        yield str(broken)


def _repeated(names: Sequence[Any], what: str) -> Iterator[str]:
    told = [name for name in names if isinstance(name, str)]
    for name in sorted({name for name in told if told.count(name) > 1}):
        yield f"the {what} {name!r} is there more than once"


def _unkept(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What is looked for in vain by a provider that stores nothing."""
    for item in items:
        kind = item.get("type")
        is_bare = kind == "reasoning" and not (item.get("encrypted_content") or item.get("content"))
        if is_bare or kind == "item_reference":
            yield f"the {kind} {item.get('id')!r} holds nothing, and a provider that stores nothing does not know it"


def _tools(body: Mapping[str, Any]) -> Iterator[str]:
    tools = _ours(body)
    for tool in tools:
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME(name):
            yield f"the name of a tool, {name!r}, {_NAME_RULE}"
        if tool.get("parameters") is not None:
            yield from _schema(tool["parameters"], f"the tool {name!r}", strict=tool.get("strict") is True)
    yield from _repeated([tool.get("name") for tool in tools], "tool")


def _choice(body: Mapping[str, Any]) -> Iterator[str]:
    choice = body.get("tool_choice")
    if mapping(choice).get("type") == "function":
        name = mapping(choice).get("name")
        if name not in [tool.get("name") for tool in _ours(body)]:
            yield f"tool_choice names {name!r}, and there is no such tool"
    if choice == "required" and not mappings(body.get("tools")):
        yield "tool_choice is 'required', and there are no tools"


def _ours(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tools that we run; what the provider runs itself has no rules that we know."""
    return [tool for tool in mappings(body.get("tools")) if tool.get("type") in {"function", "custom"}]


def _output(body: Mapping[str, Any]) -> Iterator[str]:
    form = mapping(mapping(body.get("text")).get("format"))
    if form.get("type") == "json_schema":
        name = form.get("name")
        if not isinstance(name, str) or not _NAME(name):
            yield f"the name of the output, {name!r}, {_NAME_RULE}"
        yield from _schema(form.get("schema"), "the output", strict=form.get("strict") is True)


def _schema(given: Any, what: str, *, strict: bool) -> Iterator[str]:
    schema = {word: value for word, value in mapping(given).items() if word != "$schema"}  # taken, and not looked at
    for violation in violations(schema, "openai_strict" if strict else "plain"):
        yield f"{what} has a schema that is refused: {violation}"


def _settings(body: Mapping[str, Any], dialect: Dialect) -> Iterator[str]:
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield f"there is no model: {body.get('model')!r}"
    untaken = {
        "max_output_tokens": not dialect.output_limit,
        "temperature": not dialect.sampling,
        "top_p": not dialect.sampling,
        "reasoning": not dialect.reasoning,
    }
    for name, is_refused in untaken.items():
        if is_refused and body.get(name) is not None:
            yield f"{name} is not taken here, and is {body[name]!r}"
    if not dialect.encrypted and _ENCRYPTED in (body.get("include") or ()):
        yield f"include asks for {_ENCRYPTED!r}, and there is none"
    most = body.get("max_output_tokens")
    if isinstance(most, int) and most < dialect.least_output:
        yield f"max_output_tokens is {most}, and must be at least {dialect.least_output}"
    if dialect.always_streams and (body.get("stream") is not True or body.get("store") is not False):
        yield "this endpoint only streams, and stores nothing: stream must be true, and store false"
    if dialect.default_instructions and not isinstance(body.get("instructions"), str):
        yield "this endpoint demands instructions"
    if len(body.get("prompt_cache_key") or "") > LONGEST_CACHE_KEY:
        yield f"prompt_cache_key is longer than {LONGEST_CACHE_KEY} characters"
