"""Check request bodies offline against the rules of the Responses API. No I/O."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.models.encoding_memo import ProviderRuleError
from perdure.models.mistyped_json_fields import as_dict, as_dicts
from perdure.models.openai_model_features import get_openai_model_features
from perdure.models.profile import Profile
from perdure.models.schemas import find_violations

from .dialect import MAX_CACHE_KEY_LENGTH, ResponsesDialect, get_dialect
from .message_rule_checks import CALL_TYPE_BY_RESULT_TYPE, INPUT_FIELD_BY_CALL_TYPE, ResponsesMessageRules

_is_name = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_NAME_RULE = "is not 1 to 64 letters, digits, '_' or '-'"
_ENCRYPTED = "reasoning.encrypted_content"


def lint(body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
    """Return a sentence for each rule of the Responses API that a request body breaks."""
    dialect = get_dialect(profile)
    return [
        *_lint_input(body, dialect),
        *_lint_tools(body),
        *_lint_tool_choice(body),
        *_lint_response_format(body),
        *_lint_settings(body, dialect),
        *_lint_sampling(body, profile),
    ]


def _lint_input(body: Mapping[str, Any], dialect: ResponsesDialect) -> Iterator[str]:
    given = body.get("input")
    if isinstance(given, str) and given:
        return
    items = as_dicts(given)
    yield from _lint_item_order(items, dialect, kept=bool(body.get("previous_response_id") or body.get("conversation")))
    yield from _lint_repeated(
        [each.get("call_id") for each in items if each.get("type") in INPUT_FIELD_BY_CALL_TYPE], "call_id"
    )
    yield from _lint_repeated([each.get("id") for each in items], "id")
    if body.get("store") is False:
        yield from _lint_unstored_items(items)


def _lint_item_order(items: Sequence[Mapping[str, Any]], dialect: ResponsesDialect, *, kept: bool) -> Iterator[str]:
    """Check the order of items. `kept`: the provider has the start of the conversation, and with it the calls of the
    first results.
    """
    rules = ResponsesMessageRules(dialect)
    state = rules.begin()
    try:
        for item in items:
            if not (kept and item.get("type") in CALL_TYPE_BY_RESULT_TYPE):
                state = rules.step(state, item)
        rules.end(state)
    except ProviderRuleError as broken:
        yield str(broken)


def _lint_repeated(names: Sequence[Any], what: str) -> Iterator[str]:
    told = [name for name in names if isinstance(name, str)]
    for name in sorted({name for name in told if told.count(name) > 1}):
        yield f"the {what} {name!r} is used more than once"


def _lint_unstored_items(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Find items without content, which a provider that stores nothing cannot look up."""
    for item in items:
        kind = item.get("type")
        is_bare = kind == "reasoning" and not (item.get("encrypted_content") or item.get("content"))
        if is_bare or kind == "item_reference":
            yield f"the {kind} {item.get('id')!r} is empty, and a provider that stores nothing cannot look it up"


def _lint_tools(body: Mapping[str, Any]) -> Iterator[str]:
    tools = _get_client_tools(body)
    for tool in tools:
        name = tool.get("name")
        if not isinstance(name, str) or not _is_name(name):
            yield f"the name of a tool, {name!r}, {_NAME_RULE}"
        if tool.get("parameters") is not None:
            yield from _lint_schema(tool["parameters"], f"the tool {name!r}", strict=tool.get("strict") is True)
    yield from _lint_repeated([tool.get("name") for tool in tools], "tool")


def _lint_tool_choice(body: Mapping[str, Any]) -> Iterator[str]:
    choice = body.get("tool_choice")
    if as_dict(choice).get("type") == "function":
        name = as_dict(choice).get("name")
        if name not in [tool.get("name") for tool in _get_client_tools(body)]:
            yield f"tool_choice names {name!r}, and there is no such tool"
    if choice == "required" and not as_dicts(body.get("tools")):
        yield "tool_choice is 'required', and there are no tools"


def _get_client_tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tools that the client runs, not the provider's own, whose rules are unknown."""
    return [tool for tool in as_dicts(body.get("tools")) if tool.get("type") in {"function", "custom"}]


def _lint_response_format(body: Mapping[str, Any]) -> Iterator[str]:
    form = as_dict(as_dict(body.get("text")).get("format"))
    if form.get("type") == "json_schema":
        name = form.get("name")
        if not isinstance(name, str) or not _is_name(name):
            yield f"the name of the output, {name!r}, {_NAME_RULE}"
        yield from _lint_schema(form.get("schema"), "the output", strict=form.get("strict") is True)


def _lint_schema(given: Any, what: str, *, strict: bool) -> Iterator[str]:
    schema = {word: value for word, value in as_dict(given).items() if word != "$schema"}  # accepted and ignored
    for violation in find_violations(schema, "openai_strict" if strict else "plain"):
        yield f"{what} has a schema that is refused: {violation}"


def _lint_sampling(body: Mapping[str, Any], profile: Profile) -> Iterator[str]:
    if get_openai_model_features(profile.model).sampling == "never":
        for name in ("temperature", "top_p"):
            if body.get(name) not in (None, 1):
                yield f"{name} is {body[name]!r}, and {profile.model!r} takes none"


def _lint_settings(body: Mapping[str, Any], dialect: ResponsesDialect) -> Iterator[str]:
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
            yield f"{name} is not accepted here, and is {body[name]!r}"
    if not dialect.encrypted and _ENCRYPTED in (body.get("include") or ()):
        yield f"include asks for {_ENCRYPTED!r}, which this provider does not return"
    most = body.get("max_output_tokens")
    if isinstance(most, int) and most < dialect.least_output:
        yield f"max_output_tokens is {most}, and must be at least {dialect.least_output}"
    if dialect.always_streams and (body.get("stream") is not True or body.get("store") is not False):
        yield "this endpoint only streams, and stores nothing: stream must be true, and store false"
    if dialect.default_instructions and not isinstance(body.get("instructions"), str):
        yield "this endpoint requires instructions"
    if len(body.get("prompt_cache_key") or "") > MAX_CACHE_KEY_LENGTH:
        yield f"prompt_cache_key is longer than {MAX_CACHE_KEY_LENGTH} characters"
