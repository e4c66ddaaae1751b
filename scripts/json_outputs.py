"""What each command prints with `--json`: the fields of its rows, for docs/reference/command-line.md and for the tests.

A field is written as `name: "type. Meaning."`, with `?` behind the name of one that is not in every row. The fields of
a value of the package are read from its class.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from scripts.docstrings import fields, source_of

Fields = Mapping[str, str]

CHECKS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "any": (str, int, float, bool, list, dict, type(None)),
    "null": (type(None),),
}


class Output(NamedTuple):
    """What a command prints with `--json`."""

    rows: str
    """What each line is for, or that there is one line."""
    forms: Sequence[Fields]
    """The fields of a row; several, if rows are of several kinds."""
    is_open: bool = False
    """True if a row has further fields, which are documented elsewhere."""


def describe_class(path: str, **more: str) -> Fields:
    """Return the fields of a value of the package, by the full name of its class, and further ones."""
    module, _, name = path.rpartition(".")
    source = source_of(module)
    node = source.class_named(name)
    if node is None:
        raise LookupError(f"there is no class {path}")
    omits = any(each.arg == "omit_defaults" for each in node.keywords)
    found = {
        f"{each.name}{'?' if omits and each.default else ''}": f"{name_json_type(each.annotation)}. {each.doc}".strip()
        for each in fields(source, node)
        if not each.annotation.startswith("ClassVar")
    }
    return {**found, **more}


def name_json_type(annotation: str) -> str:
    """Return the JSON type of a Python annotation."""
    kinds: list[str] = []
    for each in annotation.split(" | "):
        head = each.strip("\"' ").partition("[")[0]
        plain = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null", "Any": "any"}
        arrays = {"tuple", "list", "Sequence", "frozenset"}
        strings = {"Literal", "SlotStatus", "RestoreStatus", "Policy", "Scope", "TargetKind", "InboxStatus", "Covers"}
        strings |= {"GoalStatus", "RecordKind", "FiringStatus", "MemoryKind"}
        kinds.append(plain.get(head) or ("array" if head in arrays else "string" if head in strings else "object"))
    return " or ".join(dict.fromkeys(kinds))


GOAL = describe_class(
    "perdure._work.goals.record.GoalRecord",
    objective="string. The objective.",
    scores="array. The score of each iteration, from 0 to 1.",
    exit_code="integer. The exit code of the status.",
)
MEMORY = describe_class("perdure._work.memory.record.MemoryRecord")
FIRING = describe_class("perdure._work.schedules.firing.Firing")
SESSION = describe_class("perdure._core.log.store.SessionInfo")
RESTORED = describe_class("perdure._tools.files.history.RestoredFile")
EVENT = {"kind": "string. The kind of event; its fields are in [Events](events.md)."}
SKILL = {
    "name": "string. Name of the skill.",
    "description": "string. What it is for.",
    "source": "string. `user` or `project`.",
    "state": "string. `used`, `hidden`, `untrusted` or `changed`.",
    "path": "string. Its folder.",
    "content_hash": "string. SHA-256 of its files.",
    "problems": "array. What is wrong with it, as texts.",
}
GRANT = describe_class(
    "perdure._core.permission.grants.Grant",
    kind="string. `grant`.",
    grant_id="string. Its id, for perdure permissions revoke.",
    rule="string. The grant as a rule.",
)
CHANGE = {
    "name": "string. The tool; `*` for the whole server.",
    "off": "string. Why it is off.",
    "difference": "string. How it has changed.",
}
NAMED = {"name": "string. Name of the server."}
STORED_SERVER = {**NAMED, "path": "string. The file with its settings."}

OUTPUTS: Mapping[str, Output] = {
    "run": Output("A line for each event.", [EVENT], is_open=True),
    "resume": Output("A line for each event.", [EVENT], is_open=True),
    "goal start": Output("One line: the goal.", [GOAL]),
    "goal resume": Output("One line: the goal.", [GOAL]),
    "goal list": Output("A line for each goal, the most recently changed first.", [GOAL]),
    "goal show": Output("One line: the goal.", [GOAL]),
    "goal stop": Output(
        "One line.", [{"goal_id": "string. The goal.", "stopped": "boolean. False if it was not being pursued."}]
    ),
    "attend": Output(
        "A line for each run that ends.",
        [{
            "session_id": "string. The session.",
            "run_id": "string. The run.",
            "status": "string. How it ended, as in `Outcome.status`.",
            "reason": "string. Why, as in `Outcome.reason`.",
            "turns": "integer. Replies of the model.",
            "cost_usd": "number or null. Its cost, if it is known.",
            "error": "string or null. The error that ended it.",
        }],
    ),
    "replay": Output(
        "One line.",
        [{
            "session_id": "string. The session.",
            "agrees": "boolean. True if it does the same as recorded.",
            "runs": "integer. Runs that were replayed.",
            "turns": "integer. Turns that were replayed.",
            "skipped": "integer. Calls without a model, which cannot be replayed.",
            "divergence": "object or null. The first difference: `seq`, `about`, `what`, `recorded`, `now`, `diff`.",
            "branch": "object or null. With `--from`: `session_id`, `status`, `reason` and `text` of the fork.",
        }],
    ),
    "trace": Output(
        "One line.",
        [{
            "format": "string. `perdure-trace`.",
            "version": "integer. Version of the format.",
            "meta": "object. Session, agent, model, instructions and tools.",
            "started_at": "number. Seconds since 1970.",
            "duration_seconds": "number. From the first entry to the last.",
            "missing": "integer. Entries that were left out at the limit of a tracer.",
            "entries": "array. Objects with `seq`, `dt`, `source` and `data`: [Trace](tracing.md).",
        }],
    ),
    "sessions list": Output("A line for each session.", [SESSION]),
    "sessions rename": Output("One line.", [{"session_id": "string. The session.", "title": "string. Its new title."}]),
    "sessions rm": Output(
        "One line.",
        [{"session_id": "string. The session.", "removed": "boolean. False if there was no such session."}],
    ),
    "sessions show": Output(
        "A line for each entry of the log.",
        [{
            "seq": "integer. Number of the entry, from 1.",
            "at": "number. Seconds since 1970.",
            "event": "object. The event: [Events](events.md).",
            "id": "string. Id of the entry.",
            "critical?": "boolean. True if a reader must know this kind of event.",
            "v?": "integer. Version of the format, if it is not 1.",
            "sources": "array. Who wrote it: `user`, `model`, `tool`, `program` and others.",
        }],
    ),
    "sessions fork": Output("One line: the new session.", [SESSION]),
    "sessions tree": Output(
        "A line for each session, forks below their parents.",
        [{**SESSION, "depth": "integer. 0 for a session that is no fork."}],
    ),
    "sessions export": Output(
        "One line, if the document is written to a file.",
        [{
            "session_id": "string. The session.",
            "file": "string. The file that was written.",
            "entries": "integer. Entries in it.",
            "bytes": "integer. Size of the file.",
        }],
    ),
    "sessions import": Output(
        "One line: the new session.", [{**SESSION, "imported": "object. What was left out, and why: `ImportReport`."}]
    ),
    "sessions du": Output("One line.", [describe_class("perdure._core.log.store.StoreSize")]),
    "sessions prune": Output("A line for each session that is deleted, or would be with `--dry-run`.", [SESSION]),
    "files changes": Output(
        "A line for each change of a file, and for each command that may have changed files.",
        [
            describe_class("perdure._tools.files.history.FileChange"),
            describe_class("perdure._tools.files.history.UntrackedCommand"),
        ],
    ),
    "files undo": Output("A line for each file.", [RESTORED]),
    "files redo": Output("A line for each file.", [RESTORED]),
    "search": Output("A line for each match.", [describe_class("perdure._core.log.store.Hit")]),
    "doctor": Output(
        "A line for each check.",
        [{
            "name": "string. What was checked.",
            "status": "string. `ok`, `warn` or `fail`.",
            "finding": "string. What was found.",
            "advice": "string. What to do; empty if nothing.",
        }],
    ),
    "questions": Output(
        "A line for each open question.", [describe_class("perdure._people.view.SlotView")]
    ),
    "answer": Output(
        "One line.",
        [{
            "session_id": "string. The session.",
            "ask_id": "string. The question.",
            "answer?": "any. The answer.",
            "rejected?": "string. With `--reject`: the reason.",
        }],
    ),
    "inbox": Output("A line for each item.", [describe_class("perdure._core.people.inbox.InboxItem")]),
    "resolve": Output(
        "One line.",
        [{"session_id": "string. The session.", "item_id": "string. The item.", "response": "string. The answer."}],
    ),
    "steer": Output("One line.", [{"session_id": "string. The session.", "text": "string. The message."}]),
    "cancel": Output(
        "One line.",
        [{
            "session_id": "string. The session.",
            "mode": "string. As given.",
            "cancelled": "boolean. False if no run was in progress.",
        }],
    ),
    "permissions list": Output(
        "A line for each rule and each grant.",
        [
            {"kind": "string. `rule`.", "policy": "string. `allow`, `deny` or `ask`.", "rule": "string. The rule."},
            GRANT,
        ],
    ),
    "permissions explain": Output(
        "One line.",
        [{
            "verdict": "string. `allow`, `deny` or `ask`.",
            "why": "string. The reason.",
            "rule": "string. The rule that decides; empty if none does.",
            "grant_id": "string or null. The grant that decides.",
        }],
    ),
    "permissions revoke": Output("One line.", [{**GRANT, "revoked": "boolean. True."}]),
    "schedule list": Output(
        "A line for each schedule.",
        [describe_class("perdure._work.schedules.stored.ScheduleStatus", timing="string. The timing in words.")],
    ),
    "schedule add": Output("One line.", [{"name": "string. The schedule."}]),
    "schedule remove": Output("One line.", [{"name": "string. The schedule."}]),
    "schedule cancel": Output(
        "One line.",
        [{"name": "string. The schedule.", "cancelled": "boolean. False if no run was in progress."}],
    ),
    "schedule history": Output("A line for each firing, the newest first.", [FIRING]),
    "schedule run-now": Output("One line: the firing.", [FIRING]),
    "schedule serve": Output(
        "A line for each record, as it is stored.",
        [describe_class("perdure._work.schedules.firing.ScheduleJournalRecord")]
    ),
    "models": Output(
        "A line for each provider; with PROVIDER, for each of its models.",
        [
            describe_class("perdure._models.catalogue.status.ProviderStatus"),
            describe_class("perdure._models.endpoint.model_list.ListedModel"),
        ],
    ),
    "probe": Output("One line.", [describe_class("perdure._models.catalogue.saved_profiles.SavedProfile")]),
    "skills list": Output("A line for each skill.", [SKILL]),
    "skills show": Output(
        "One line.",
        [{
            **SKILL,
            "body": "string. Its instructions.",
            "license": "string. Its licence.",
            "compatibility": "string. What it needs.",
            "allowed_tools": "string. Tools that it asks for, which are not granted by it.",
            "priority": "integer. Order in the catalogue.",
            "hidden": "boolean. True if the model does not see it.",
            "metadata": "object. Further keys of its front matter.",
            "sections": "array. Names of its sections.",
            "resources": "array. Paths of its other files.",
        }],
    ),
    "skills trust": Output("One line.", [SKILL]),
    "skills revoke": Output("One line.", [SKILL]),
    "mcp list": Output(
        "A line for each server.",
        [{
            **NAMED,
            "state": "string. `used` or `untrusted`, or what is wrong.",
            "source": "string. `user` or `project`.",
            "path": "string. The file with its settings.",
            "reached": "string. Its command or URL.",
            "logged_in": "boolean. True if there is a login.",
            "problem": "string. Why it cannot be started, if that is known without starting it.",
        }],
    ),
    "mcp add": Output("One line.", [{**STORED_SERVER, "problem?": "string. Why it cannot be used."}]),
    "mcp remove": Output("One line.", [STORED_SERVER]),
    "mcp tools": Output(
        "A line for each tool, and for each change that waits for approval.",
        [
            {
                "name": "string. Name of the tool.",
                "description": "string. What it does.",
                "effect": "string. As in `Tool.effect`.",
                "parameters": "object. JSON Schema of its arguments.",
            },
            CHANGE,
        ],
    ),
    "mcp call": Output(
        "One line.",
        [{
            "status": "string. As in `ToolResult.status`.",
            "text": "string. The result as text.",
            "structured": "any. The structured result, if there is one.",
        }],
    ),
    "mcp login": Output("One line.", [{**NAMED, "logged_in": "boolean. True."}]),
    "mcp logout": Output(
        "One line.", [{**NAMED, "logged_in": "boolean. False.", "was_logged_in": "boolean. True if there was a login."}]
    ),
    "mcp approve": Output("A line for each change.", [CHANGE]),
    "memory list": Output("A line for each memory.", [MEMORY]),
    "memory search": Output(
        "A line for each hit, the best first.", [describe_class("perdure._work.memory.record.MemoryHit")]
    ),
    "memory add": Output("One line: the memory.", [MEMORY]),
    "memory forget": Output(
        "One line.",
        [{"forgotten": "array. Ids of the memories that were deleted.", "unknown": "array. Ids that there are not."}],
    ),
    "memory pin": Output("One line: the memory.", [MEMORY]),
    "memory unpin": Output("One line: the memory.", [MEMORY]),
    "memory export": Output(
        "One line, with `--output`. Without it, the export itself: a line for each memory.",
        [{"file": "string. The file.", "memories": "integer. Number of memories in it."}, MEMORY],
    ),
    "memory import": Output("One line.", [describe_class("perdure._work.memory.long_term.MemoryImportReport")]),
    "config check": Output(
        "One line.",
        [{
            "path": "string. The file.",
            "valid": "boolean. False if it cannot be used.",
            "errors": "array. Objects with `line` and `message`.",
            "notes": "array. Further remarks, as texts.",
        }],
    ),
    "config show": Output(
        "One line: every setting of the file, with defaults, or the servers of a `.mcp.json`.",
        [{"path": "string. The file.", "sha256": "string. The digest under which it is trusted."},
         {"mcpServers": "object. The servers by name."}],
        is_open=True,
    ),
    "trust": Output(
        "One line; with `--list` a line for each folder. For a file, `--yes` or `--revoke` is needed.",
        [{"path": "string. The folder.", "trusted": "boolean. False if it is not trusted, or was replaced."},
         {
            "path": "string. The file.",
            "trusted": "boolean. False with `--revoke`.",
            "digest": "string. SHA-256 of all files that it covers.",
            "files": "array. The paths of these files.",
            "settings": "object. Settings that need trust, each with its effect.",
        }],
    ),
    "review": Output("One line.", [describe_class("perdure._work.judging.reviews.review.Review")]),
    "eval": Output("One line: the report.", [describe_class("perdure._work.judging.evals.report.EvaluationReport")]),
    "init": Output(
        "A line for each file.", [{"path": "string. The file.", "status": "string. `created` or `kept`."}]
    ),
    "completion install": Output(
        "One line.", [{"shell": "string. The shell.", "path": "string. The file that was written."}]
    ),
    "backup": Output("One line.", [{"store": "string. The store.", "backup": "string. The backup."}]),
    "restore": Output("One line.", [{"store": "string. The store.", "backup": "string. The backup."}]),
}  # fmt: skip
"""By the words of the command."""

WITHOUT_JSON: Mapping[str, str] = {
    "chat": "It is a conversation at a terminal; `perdure run --json` is for programs.",
    "mcp serve": "Its standard output is the protocol.",
    "config schema": "It prints JSON anyway: the JSON Schema of `perdure.toml`.",
    "completion show": "It prints a script for a shell.",
}
"""Commands without `--json`, and why."""


def list_problems(words: str, printed: str) -> Iterator[str]:
    """Yield what in the output of a command with `--json` is not as documented."""
    output = OUTPUTS[words]
    for line in printed.splitlines():
        row = json.loads(line)
        wrong = [list(_compare_row(row, form, is_open=output.is_open)) for form in output.forms]
        if all(wrong):
            yield f"perdure {words} --json: {min(wrong, key=len)} in {line[:300]}"


def _compare_row(row: Mapping[str, Any], form: Fields, *, is_open: bool) -> Iterator[str]:
    known = {name.rstrip("?"): text for name, text in form.items()}
    for name in [each for each in form if not each.endswith("?") and each not in row]:
        yield f"{name} is missing"
    for name, value in row.items():
        if name not in known:
            yield from () if is_open else [f"{name} is not documented"]
            continue
        kinds = known[name].partition(".")[0].split(" or ")
        if not any(isinstance(value, CHECKS[kind]) for kind in kinds):
            yield f"{name} is {value!r}, not {' or '.join(kinds)}"
