"""Reads the names out of Glove's reference: a page of tables and TypeScript, whose headings have been lost.

So it is said here, in order, what each table describes; a table more or less is an error.
"""

import re
from collections.abc import Iterator

NO_NAMES = {
    'SubscriberAdapter."type"': "how a type is looked up, in the type of a parameter",
    "AbortSignal": "of JavaScript",
    "DisplayManager": "Displaymanager, spelt otherwise in prose",
    "MyAdapter": "made up in an example",
    "OpenRouter": "a company",
    "DeepSeek": "a company",
    "MiniMax": "a company",
    "MiMo": "a model",
    "readFile": "made up in an example",
    "sliceLines": "made up in an example",
    "lineCount": "made up in an example",
    "read_file": "made up in an example",
    "get_weather": "made up in an example",
    "userMessage": "a variable of an example",
    "promptMachine": "a variable of an example",
    "myTool": "a variable of an example",
    "taskTool": "a variable of an example",
    "myStore": "a variable of an example",
    "responseText": "a variable of an example",
    "fullText": "a variable of an example",
    "finishReason": "a variable of an example",
    "toolCalls": "a variable of an example",
    "toolCallId": "a variable of an example",
    "toolName": "a variable of an example",
    "parsedArgs": "a variable of an example",
    "slot_id": "a parameter of a method",
    "taskId": "a parameter of a method",
    "itemId": "a parameter of a method",
    "new_max": "a parameter of a method",
    "new_limit": "a parameter of a method",
    "event_type": "a parameter of a method",
    "event_name": "a parameter of a function type",
    "summaryArgs": "a parameter of a function type",
    "handOver": "a parameter of a method; its type is HandOverFunction",
    "tool_result": "of a provider's format, in prose",
    "enable_thinking": "of a provider, in an example",
    "thinking_budget": "of a provider, in an example",
}
"""Words that look like names, and why they are none."""

TABLES = """
    GloveConfig Glove Glove GloveFoldArgs IGloveRunnable Displaymanager DisplayManagerAdapter Slot Renderer Context
    PromptMachine Executor Executor Observer Observer Agent ModelAdapter PromptRequest ModelPromptResult
    SubscriberEvent StoreAdapter SubscriberAdapter Message ContentPart Tool ToolCall ToolResult ToolResultData Task
    - - CompactionConfig TaskToolInput CreateAdapterOptions provider
"""
"""What the tables describe, in order; `-` for tables whose names stand by themselves."""

_RULE = re.compile(r"^\|[-|]+$")
_CELL_NAME = re.compile(r"[\w.]+")
_LITERAL = re.compile(r'"([\w-]+)"')
_VARIANT = re.compile(r'\{ type: "(\w+)"; (.*?)\}', re.DOTALL)
_FIELD = re.compile(r"(\w+)\??:")
_MEMBER = re.compile(r"(?<![\w./])([A-Z][A-Za-z]+)\.([a-z]\w+)\b")
_CONSTRUCTOR = re.compile(r"new ([A-Z]\w+)\(([^()]*:[^()]*)\)")


def names(text: str) -> Iterator[str]:
    """Every row of every table, and what the code between them declares."""
    described = TABLES.split()
    yield from set(described) - {"-", "provider"}
    lines = text.splitlines()
    heads = [at - 1 for at, line in enumerate(lines) if _RULE.match(line)]
    for owner, head, end in zip(described, heads, [*heads[1:], len(lines)], strict=True):
        yield from table(owner, lines[head + 2 : end])
    yield from declarations(text)
    for event, fields in _VARIANT.findall(text):
        yield from (f"{event}.{field}" for field in _FIELD.findall(fields))
        yield from (f'{event}."{literal}"' for literal in _LITERAL.findall(fields))
    for owner, parameters in _CONSTRUCTOR.findall(text):
        yield from (f"{owner}.{parameter}" for parameter in _FIELD.findall(parameters))
    for owner, member in _MEMBER.findall(text):
        yield from (owner, f"{owner}.{member}")
    yield from (f"InboxItem.{field}" for field in ("status", "response", "resolved_at", '"resolved"'))
    yield from ("InboxItem", 'ContentPart."base64"', 'ContentPart."url"')


def prose(text: str) -> str:
    """Where else names may stand: all of it."""
    return text


def table(owner: str, lines: list[str]) -> Iterator[str]:
    """The names in the first cells of a table's rows, and the strings that its types allow."""
    for line in lines:
        if not line.startswith("|"):
            return
        first, *types, description = [cell.strip() for cell in line.strip("|").split("|")]
        match = _CELL_NAME.match(first)
        assert match, line
        if owner == "-":
            yield match[0]
        elif owner == "provider":
            yield from (f'provider."{match[0]}"', *re.findall(r"[A-Z_]{8,}", types[0]))
        elif owner == "SubscriberEvent":
            yield f'{owner}."{match[0]}"'
        else:
            yield f"{owner}.{match[0]}"
            yield from (f'{owner}."{literal}"' for literal in _LITERAL.findall("|".join(types)))
            for form in re.findall(r"Object form: \{ (.*?) \}", description):
                yield from (f"{match[0]}.{field}" for field in re.findall(r"\w+", form))


def declarations(text: str) -> Iterator[str]:
    """Interfaces with their fields, aliases with their strings, functions, and what is imported."""
    for name, body in re.findall(r"\binterface (\w+) \{\n(.*?)\n\}(?!;)", text, re.DOTALL):
        yield name
        yield from (f"{name}.{field}" for field in fields_of(body))
    for name, strings in re.findall(r'\btype (\w+) = ((?:"\w+"(?: \| )?)+);', text):
        yield name
        yield from (f'{name}."{literal}"' for literal in _LITERAL.findall(strings))
    yield from re.findall(r"\bfunction (\w+)\(", text)
    for imported, module in re.findall(r'import (?:type )?\{ (.*?) \} from "(glove[\w/-]*)"', text):
        yield from (*imported.split(", "), module)
    for function, fields in re.findall(r"\bfunction (\w+)\(\): Array<\{ (.*?) \}>", text):
        yield from (f"{function}.{field}" for field in _FIELD.findall(fields))
    for listing in re.findall(r"Each provider has properties: (.*)\.", text):
        yield from (f'provider."{word}"' for word in _LITERAL.findall(listing))
        plain = re.sub(r"\(.*?\)|\band\b|\[\]", "", listing)
        yield from (f"provider.{word}" for word in re.findall(r"\w+", plain))


def fields_of(body: str) -> Iterator[str]:
    """The fields of an interface, with a dot between a field and what is inside of it."""
    inside: list[str] = []
    without_comments = re.sub(r"/\*.*?\*/|//.*", "", body)
    without_parameters = re.sub(r"\(\n.*?\n\)", "()", without_comments, flags=re.DOTALL)
    for line in without_parameters.splitlines():
        match = re.match(r"(\w+)\??[:(]", line)
        if match:
            yield ".".join([*inside, match[1]])
            yield from (f'"{literal}"' for literal in _LITERAL.findall(line))
            for nested in re.findall(r"\{ (.*) \}", line):
                yield from (f"{match[1]}.{field}" for field in _FIELD.findall(nested))
            if line.endswith("{"):
                inside.append(match[1])
        elif line.startswith("}") and inside:
            inside.pop()
