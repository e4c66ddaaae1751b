"""`perdure permissions`: list rules and grants, explain how a call would be decided, and revoke grants.

The rules are those of the configuration in use. Grants are lasting answers: those for every session are in a file in
`~/.perdure`, those for one session in its log. A log may also have answers for ever that are in no file, of programs
that keep them in memory: these count for that session alone.
"""

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from perdure._cli.home import build_session_not_found, grants_path, run_with_store, store_option
from perdure._cli.run.command import add_agent_options, take_agent_options
from perdure._cli.terminal.frame import UntrustedTextFrame, make_frame, quote_text, quote_unless_plain
from perdure._cli.terminal.output import TerminalOutput, to_ascii_json, to_one_line
from perdure._core.values.error import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from perdure._core.permission.gate import Explanation
    from perdure._core.permission.grants import Grant
    from perdure._core.permission.rules import Rule
    from perdure._people.grants import GrantFile
    from perdure._runtime.agent.agent import Agent

_PAGE = 200
"""Sessions that are listed at once."""

Work: TypeAlias = "Callable[[Agent[Any], Sequence[Rule], str], Awaitable[Any]]"
"""Function that is called with an agent, the rules of the configuration, and the store as `--store` names it."""

_json_option = click.option("--json", "as_json", is_flag=True, help="Print each result as a line of JSON.")
_session_option = click.option("--session", "-s", "session_id", metavar="ID", help="Only this session.")


@click.group(invoke_without_command=True)
@click.pass_context
def permissions(context: click.Context) -> None:
    """List permission rules and grants, explain how a tool call is decided, and revoke grants.

    A rule is in the configuration. A grant is an answer that lasts: for a run, a session or forever.
    """
    if context.invoked_subcommand is None:
        TerminalOutput().write(context.get_help() + "\n")


@permissions.command("list")
@_session_option
@_json_option
@add_agent_options
@store_option
def list_permissions(session_id: str | None, *, as_json: bool, **options: Any) -> None:
    """List the rules of the configuration, and the grants of all sessions.

    A grant "forever" holds in every session. One that is "forever, in" a session was given to a program that keeps no
    grants: it counts for that session.
    """

    async def collect(agent: "Agent[Any]", rules: "Sequence[Rule]", store: str) -> "tuple[Any, list[Grant]]":
        grants = await _list_grants(agent, session_id, store)
        for_all = {grant.grant_id for grant in grants if grant.holds_in_all_sessions}
        return rules, [grant for grant in grants if grant.holds_in_all_sessions or grant.grant_id not in for_all]

    rules, grants = _use_agent(options, collect)
    screen = TerminalOutput()
    if as_json:
        for each in (*[_rule_to_json(rule) for rule in rules], *map(_grant_to_json, grants)):
            screen.write(_encode(each))
        return
    frame = make_frame(sys.stdout)
    for rule in rules:
        frame.add_value("rule", str(rule))
    for grant in grants:
        _add_grant(frame, grant)
    if frame.rows:
        screen.write("".join([f"{row}\n" for row in frame.rows]))
    if not rules:
        screen.note("no configuration in use has rules")
    if not grants:
        screen.note("there are no grants")


@permissions.command()
@click.argument("tool")
@click.argument("arguments", metavar="JSON-ARGUMENTS", default="{}")
@click.option("--session", "-s", "session_id", metavar="ID", help="Explain it in this session.  [default: a new one]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
@add_agent_options
@store_option
def explain(tool: str, arguments: str, *, session_id: str | None, as_json: bool, **options: Any) -> None:
    """Explain whether a call of TOOL would be allowed, denied or asked about.

    Nothing is called and nobody is asked.
    """
    decoded = _decode_arguments(arguments)

    async def work(agent: "Agent[Any]", _rules: "Sequence[Rule]", store: str) -> "Explanation":
        from perdure._cli.sessions.choice import find_session

        name = session_id and await find_session(agent.store, session_id)
        session = agent.session(name)
        if session_id is not None and await session.info() is None:
            raise build_session_not_found(session_id, store)
        return await session.explain(tool, decoded)

    found: Explanation = _use_agent(options, work)
    if as_json:
        grant = None if found.grant is None else found.grant.grant_id
        TerminalOutput().write(
            _encode({"verdict": found.verdict, "why": found.why, "rule": found.rule, "grant_id": grant})
        )
        return
    frame = make_frame(sys.stdout)
    frame.add_label({"allow": "allowed", "deny": "denied", "ask": "asked about"}[found.verdict])
    frame.add_value("because", found.why)
    if found.rule:
        frame.add_value("rule", found.rule)
    if found.grant is not None:
        _add_grant(frame, found.grant)
    TerminalOutput().write("".join([f"{row}\n" for row in frame.rows]))


@permissions.command()
@click.argument("grant_id", metavar="GRANT")
@_session_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
@add_agent_options
@store_option
def revoke(grant_id: str, *, session_id: str | None, as_json: bool, **options: Any) -> None:
    """Revoke GRANT, as `perdure permissions list` names it. The next such call is asked about again."""

    async def work(agent: "Agent[Any]", _rules: "Sequence[Rule]", store: str) -> "Grant":
        found = [each for each in await _list_grants(agent, session_id, store) if each.grant_id == grant_id]
        if not found:
            raise UsageError(f"there is no grant {grant_id!r}; `perdure permissions list` lists them")
        _open_grant_file().revoke(grant_id)
        for grant in [each for each in found if each.session_id]:
            await _read_grants_from_logs(agent).session(grant.session_id).revoke(grant_id)
        return found[0]

    grant: Grant = _use_agent(options, work)
    if as_json:
        TerminalOutput().write(_encode({**_grant_to_json(grant), "revoked": True}))
    else:
        TerminalOutput().note(to_one_line(f"{grant_id} is revoked: {quote_text(str(grant.rule))}"))


# -- rules and grants --------------------------------------------------------------------------------------------------


def _use_agent(options: dict[str, Any], work: Work) -> Any:
    """Call `work` with the agent that `perdure run` would use in this folder, and with its rules. No model is asked."""
    from perdure._cli.run.assembly import collect_agent_parts, resolve_store

    given = options.pop("store")
    wish = take_agent_options(options)
    parts = collect_agent_parts(wish)
    table = None if parts.config is None else parts.config.tables.permissions
    rules = () if table is None else table.rules

    named = given or resolve_store(wish)

    async def run(store: Any) -> Any:
        async def ask(_requests: Any) -> list[Any]:
            return []  # never called: it makes the gate say what it would ask about

        async with parts.build_agent(permission=parts.build_gate(ask), store=store, model="demo") as agent:
            return await work(agent, rules, named)

    return run_with_store(named, run)


def _open_grant_file() -> "GrantFile":
    from perdure._people.grants import GrantFile

    return GrantFile(grants_path())


async def _list_grants(agent: "Agent[Any]", session_id: str | None, store: str) -> "list[Grant]":
    """Return the grants for every session, and those in the log of one session or of all."""
    if session_id is not None:
        from perdure._cli.sessions.choice import find_session

        session_id = await find_session(agent.store, session_id)
        if await agent.session(session_id).info() is None:
            raise build_session_not_found(session_id, store)
        names = [session_id]
    else:
        names = await _list_session_ids(agent)
    from_logs = _read_grants_from_logs(agent)
    return [*_open_grant_file(), *[grant for name in names for grant in await from_logs.session(name).grants()]]


def _read_grants_from_logs(agent: "Agent[Any]") -> "Agent[Any]":
    """Return an agent without a gate: the grants of its sessions are those in their logs, of whichever program."""
    return agent.replace(permission=None)


async def _list_session_ids(agent: "Agent[Any]") -> list[str]:
    names: list[str] = []
    while infos := await agent.store.list(limit=_PAGE, offset=len(names)):
        names += [info.session_id for info in infos]
    return names


def _decode_arguments(text: str) -> dict[str, Any]:
    import msgspec

    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise click.UsageError(f"""the arguments are no JSON object ({error}); write '{{"path": "a.txt"}}'""") from None


# -- on the screen -----------------------------------------------------------------------------------------------------


def _add_grant(frame: UntrustedTextFrame, grant: "Grant") -> None:
    """Add the rows of a grant: its id, its rule, how long it is valid, and what it is bound to."""
    session = quote_unless_plain(grant.session_id)
    where = f"forever, in {session}" if grant.scope == "forever" else f"{grant.scope} {session}"
    where = "forever" if grant.holds_in_all_sessions else where
    width = f", for {quote_unless_plain(grant.covers)}" if grant.covers != "pattern" else ""
    frame.add_value(f"{grant.grant_id} ({where}{width})", str(grant.rule))
    bound = grant.binding
    if bound is not None:
        if bound.agent:
            frame.add_value("  agent", bound.agent)
        if bound.project:
            frame.add_value("  project", bound.project)
    if grant.by:
        frame.add_value("  by", grant.by)


def _rule_to_json(rule: "Rule") -> dict[str, Any]:
    return {"kind": "rule", "policy": rule.policy, "rule": str(rule)}


def _grant_to_json(grant: "Grant") -> dict[str, Any]:
    import msgspec

    return {"kind": "grant", "grant_id": grant.grant_id, "rule": str(grant.rule), **msgspec.to_builtins(grant)}


def _encode(value: Any) -> str:
    import msgspec

    return to_ascii_json(msgspec.json.encode(value)) + "\n"
