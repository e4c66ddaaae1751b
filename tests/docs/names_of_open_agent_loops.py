"""Reads the names out of Open Agent Loops' reference: an index of names, each with a description glued to it.

The name and the first word of its description stand together (`maxStepsBuild a condition`), so the last hump of a
line's first word is where the description begins.
"""

import re
from collections.abc import Iterator

NO_NAMES = {
    "AgentEvents": "more than one AgentEvent",
    "RequestSnapshots": "more than one RequestSnapshot",
    "steeringMode": "of another project, mentioned for comparison",
    "followUpMode": "of another project, mentioned for comparison",
}
"""Words that look like names, and why they are none."""

_HEAD = re.compile(r"(Name|Interface|Class|Function|Type Alias)Description")
_FIRST_WORD = re.compile(r"(?:RAM-backed|In-memory|AsyncWriter|[A-Z][a-z]*(?:-[a-z]+)*|-)$")
_EXAMPLE = re.compile(r"await runAgent\(\{\n(.*?)\n\}\);", re.DOTALL)
_MEMBER = re.compile(r"(?<![\w./])([A-Z]\w+)\.([a-zA-Z]\w+)\b")
_QUOTED = re.compile(r'"([a-z][a-z-]*)"')

PROSE = {
    "AudioPart": '"wav" "mp3"',
    "Tool": "name description execute",
    "ToolMessage": "tool_call_id toolName isError timestamp",
    "AssistantMessage": "content reasoning reasoning_details finishReason tool_calls isError timestamp",
    "SystemMessage": "content timestamp",
    "UserMessage": "content timestamp",
    "FilePart": "file_data filename file_id",
    "Message": "role",
    "PushResult": "accepted",
    "OverflowPolicy": "coalesce",
    "BoundedBuffer": "push drain",
    "BoundedBufferOptions": "capacity",
    "Dispatcher": "submit",
    "DispatcherRunBase": "sessionId prompt signal",
    "RunGoalRunBase": "sessionId prompt signal",
    "ChannelBridge": "start stop",
    "ModelClient": "stream",
    "AgentEvent": '"agent_start"',
    "StopContext": "step",
    "PermissionPolicy": '"allow" "deny" "ask"',
    "TraceMeta": "sessionId system tools model params baseURL",
    "RawRequest": "messages tools chat_template_kwargs",
    "RequestSnapshot": "tools system",
    "TrajectoryStep": "assistant tools",
    "TraceEntry": "data label t dt",
    "TraceDocument": "startedAt",
    "Tracer": "observe onRequest onRawRequest",
    "ToolRegistry": "resolve",
    "SkillRegistry": "resolve",
    "Skill": "name description instructions tools",
}
"""Members that the descriptions mention in passing; words such as `start` cannot be told from prose by their looks."""

TOOLS = """browser_navigate browser_click browser_type code_execution edit glob read search shell web_fetch web_search
    write read_scratchpad write_scratchpad todo_append todo_list todo_update skill skill_resource"""
"""What the ready-made tools are called when a model calls them."""


def names(text: str) -> Iterator[str]:
    """The index, the members and the strings that descriptions mention, and the tools."""
    yield from (_FIRST_WORD.sub("", line.split()[0]) for line in index(text))
    for owner, member in _MEMBER.findall(text):
        yield f"{owner}.{member}"
    for example in _EXAMPLE.findall(text):
        yield from (f"RunAgentOptions.{field}" for field in re.findall(r"^  (\w+)[:,]", example, re.MULTILINE))
    yield "RunResult.newMessages"
    yield from (f"DrainMode.{literal}" for literal in ('"one-at-a-time"', '"all"'))
    for owner, members in PROSE.items():
        yield from (f"{owner}.{member}" for member in members.split())
    yield from (f'tool."{tool}"' for tool in TOOLS.split())


def index(text: str) -> Iterator[str]:
    """The lines of the index, each a name and its description."""
    listed = False
    for line in text.splitlines():
        listed = bool(line) and (listed or bool(_HEAD.match(line)))
        if listed and not _HEAD.match(line):
            yield line


def prose(text: str) -> str:
    """Where else names may stand: in the descriptions, and in front of the index."""
    described = [" ".join(line.split()[1:]) for line in index(text)]
    return "\n".join([text[: text.index("NameDescription")], *described])
