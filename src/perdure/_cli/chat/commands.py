"""The slash commands of the chat, such as `/model` and `/undo`.

A name that is no command may be a skill of the agent: then the text is a prompt.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from perdure._cli.sessions.choice import find_session, get_project_path, read_project, shorten_id
from perdure._cli.sessions.files import describe_untracked, list_commands_since, open_file_history
from perdure._cli.terminal.frame import make_frame, quote_text
from perdure._cli.terminal.output import to_one_line
from perdure._core.values.error import UsageError
from perdure._models.registry import list_provider_statuses, open_model
from perdure._runtime.session.stored import iterate_sessions

from .rows import format_cost, format_usage

if TYPE_CHECKING:
    from perdure._core.log.store import SessionInfo
    from perdure._runtime.session.session import Session

    from .chat import Chat

COMMANDS: Final[Mapping[str, str]] = {
    "help": "show the commands and keys",
    "model": "show or change the model: /model PROVIDER:MODEL",
    "session": "show the session, or open or create another: /session ID",
    "resume": "go on with the open run, or choose an earlier session: /resume [ID]",
    "fork": "go on in a copy of the session; /fork N leaves out the last N prompts",
    "compact": "summarise the conversation for the model",
    "usage": "show tokens, cache and cost",
    "tools": "list the tools of the agent",
    "skills": "list the skills; /NAME loads one",
    "role": "show or change the role: /role NAME",
    "undo": "take back the file changes of the last run",
    "redo": "make the undone file changes again",
    "permissions": "list rules and grants; /permissions revoke GRANT",
    "show": "show a tool result in full: /show [N]",
    "copy": "copy the last answer to the clipboard of the terminal",
    "quit": "leave the chat",
}
"""The commands, and what each does."""

KEYS: Final[Mapping[str, str]] = {
    "Enter": "send; while the agent works, steer it",
    "Ctrl-J, Alt-Enter": "begin a new line",
    "Tab": "complete /command, /skill, @file",
    "Up, Down": "earlier prompts",
    "Esc": "cancel the run; what was written is kept",
    "Ctrl-O": "show the last tool result in full",
    "Ctrl-C twice, Ctrl-D": "leave; a run that is not finished can be resumed",
}
"""The keys of the chat in a window, and what each does."""
_COMMAND: Final = re.compile(r"/([A-Za-z][\w-]*)(?:\s+(.*))?", re.DOTALL)
_ALIASES: Final = {"exit": "quit", "q": "quit"}
_MOST_LISTED: Final = 10
_MOST_SEARCHED: Final = 200
_MOST_RESTORED: Final = 50
_MAX_COPIED: Final = 100_000
"""Characters that are copied: terminals ignore longer clipboard sequences."""

Handler = Callable[[str], Awaitable[None]]


class ChatCommands:
    """Carries out slash commands in a chat."""

    def __init__(self, host: "Chat", keys: Mapping[str, str] = KEYS, *, without: Collection[str] = ()) -> None:
        """Carry out commands for a chat with these keys; those in `without` make no sense there."""
        self._chat = host
        self._keys = keys
        self._commands = {name: about for name, about in COMMANDS.items() if name not in without}
        self._handlers: dict[str, Handler] = {name: getattr(self, f"_do_{name}") for name in self._commands}

    async def call(self, text: str) -> bool:
        """Carry out a command; return False if the text is none, but a prompt. Raises `UsageError` if it is neither."""
        found = _COMMAND.fullmatch(text.strip()) if text.startswith("/") else None
        if found is None:
            return False
        name = _ALIASES.get(found[1], found[1])
        handler = self._handlers.get(name)
        if handler is None:
            skills = self._chat.agent.all_skills()
            names = {each.name for each in self._chat.agent.all_commands()}
            if found[1] in names or (skills is not None and found[1] in skills):
                return False
            raise UsageError(
                f"there is no command or skill /{found[1]}; /help lists the commands. To send it as it is, begin with "
                "a blank"
            )
        self._chat.show_command(text)
        await handler((found[2] or "").strip())
        return True

    def list_arguments(self, command: str) -> Sequence[str]:
        """Return what the argument of a command can be completed to."""
        match command:
            case "model":
                return [f"{each.name}:{each.default_model}" if each.default_model else each.name
                        for each in list_provider_statuses() if each.available]  # fmt: skip
            case "role":
                return [each.name for each in self._chat.agent.all_roles()]
            case "permissions":
                return ["revoke"]
            case _:
                return []

    def _note(self, text: str) -> None:
        self._chat.note(text)

    def _list(self, rows: Mapping[str, str]) -> None:
        """Print a table of names and explanations, framed, since both may come from files, and wrapped at words."""
        import sys

        frame = make_frame(sys.stdout)
        for name, about in rows.items():
            frame.add_words(f"{to_one_line(name)}: {to_one_line(about)}" if about else to_one_line(name))
        self._chat.print_rows(frame.rows)

    def _require_idle(self) -> None:
        if self._chat.is_running:
            raise UsageError("the agent is working: wait for it, or cancel it with Esc")

    # -- the commands --------------------------------------------------------------------------------------------------

    async def _do_help(self, _: str) -> None:
        self._list({f"/{name}": about for name, about in self._commands.items()})
        self._list(self._keys)

    async def _do_model(self, name: str) -> None:
        if name:
            open_model(name)  # raises if there is none of that name
            self._chat.overrides["model"] = name
        model = self._chat.overrides.get("model", self._chat.model_name)
        self._note(f"the {'next ' if name else ''}model is {to_one_line(str(model))}")

    async def _do_role(self, name: str) -> None:
        if name:
            self._chat.agent.find_role(name)  # raises if there is none of that name
            self._chat.overrides["role"] = name
            self._note(f"the next run has the role {to_one_line(name)}")
            return
        roles = self._chat.agent.all_roles()
        self._list({each.name: each.description for each in roles})
        self._note(f"role: {to_one_line(str(self._chat.overrides.get('role') or 'none'))}")

    async def _do_session(self, given: str) -> None:
        self._require_idle()
        store = self._chat.session.store
        if given:
            await self._chat.open_session(self._chat.agent.session(await find_session(store, given)))
        info = await self._chat.session.info()
        entries = 0 if info is None else info.entries
        title = "" if info is None else f": {quote_text(info.title, 60)}"
        self._note(f"session {to_one_line(self._chat.session.session_id)}, {entries} entries{title}")

    async def _do_resume(self, given: str) -> None:
        self._require_idle()
        if not given and await self._chat.resume(unpark=True):
            return
        session_id = given or await self._choose_session()
        if session_id:
            store = self._chat.session.store
            await self._chat.open_session(self._chat.agent.session(await find_session(store, session_id)))

    async def _choose_session(self) -> str:
        """Ask which of the last sessions of this project to open; return an empty id for none."""
        found = await self._list_sessions()
        if not found:
            self._note("there is no other session of this project yet")
            return ""
        self._list({f"{n} {shorten_id(each.session_id)}": each.title[:60] for n, each in enumerate(found, 1)})
        answer = (await self._chat.ask(f"Which? 1 to {len(found)}, or Enter for none: ") or "").strip()
        if not answer:
            return ""
        if not (answer.isascii() and answer.isdecimal() and 1 <= int(answer[:9]) <= len(found)):
            raise UsageError(f"{answer!r} is none of the numbers")
        return found[int(answer) - 1].session_id

    async def _list_sessions(self) -> "list[SessionInfo]":
        store, here = self._chat.session.store, get_project_path()
        found: list[SessionInfo] = []
        searched = 0
        async for info in iterate_sessions(store):
            searched += 1
            is_other = info.session_id != self._chat.session.session_id
            if is_other and await read_project(store, info.session_id) == here:
                found.append(info)
            if len(found) == _MOST_LISTED or searched == _MOST_SEARCHED:
                break
        return found

    async def _do_fork(self, given: str) -> None:
        self._require_idle()
        session: Session[Any] = self._chat.session
        if given and not (given.isascii() and given.isdecimal()):
            raise UsageError(f"/fork {given}: give the number of prompts to leave out, or nothing")
        at, text = None, ""
        if given and int(given[:9]):
            prompts = [each for each in await session.history() if each.message.role == "user"]
            prompts = [each for each in prompts if not each.message.origin]
            if int(given[:9]) > len(prompts):
                raise UsageError(f"/fork {given}: the session has {len(prompts)} prompts")
            left_out = prompts[-int(given[:9])]
            at, text = (
                await self._find_end_before(left_out.run_id),
                left_out.message.original_text or left_out.message.text,
            )
        is_empty = at == 0  # nothing is left of the session
        await self._chat.open_session(self._chat.agent.session() if is_empty else await session.fork(at=at))
        self._note(f"this is a fork, {shorten_id(self._chat.session.session_id)}; files are as they were")
        self._chat.offer_prompt(text)

    async def _find_end_before(self, run_id: str) -> int:
        """Return the number of the last entry before a run."""
        entries = await self._chat.session.read_run(run_id)
        return entries[0].seq - 1

    async def _do_compact(self, _: str) -> None:
        self._require_idle()
        done = await self._chat.session.compact()
        self._note("the model is sent a summary from now on" if done else "the conversation is too short to compact")

    async def _do_usage(self, _: str) -> None:
        usage = await self._chat.session.usage()
        tokens = usage.usage
        cost = "not known" if usage.cost_usd is None else format_cost(usage.cost_usd)
        self._list({
            "turns": f"{usage.turns:,}",
            "input": f"{tokens.input_tokens:,} tokens, of which {tokens.cache_read_tokens:,} from the cache and "
            f"{tokens.cache_write_tokens:,} written to it",
            "output": f"{tokens.output_tokens:,} tokens, of which {tokens.reasoning_tokens:,} for thinking",
            "last request": f"{usage.last_input_tokens:,} tokens",
            "cost": cost,
            "counts": tokens.precision,
        })  # fmt: skip
        self._note(format_usage(usage) or "nothing was asked yet")

    async def _do_tools(self, _: str) -> None:
        tools = {each.name: each.description.split("\n")[0] for each in self._chat.agent.toolbox}
        self._list(tools or {"none": "this agent has no tools"})

    async def _do_skills(self, _: str) -> None:
        skills = self._chat.agent.all_skills()
        if skills is None or not skills.names:
            self._note("there are no skills; perdure skills list says why, and perdure init makes a sample")
            return
        self._list({f"/{name}": skills.get(name).description for name in skills.names})

    async def _do_undo(self, given: str) -> None:
        await self._restore("undo", given)

    async def _do_redo(self, given: str) -> None:
        await self._restore("redo", given)

    async def _restore(self, way: str, given: str) -> None:
        self._require_idle()
        if given not in {"", "overwrite"}:
            raise UsageError(f"/{way} {given}: give nothing, or: /{way} overwrite")
        history = open_file_history(self._chat.session, self._chat.store)
        overwrite = given == "overwrite"
        done = await (history.undo(overwrite=overwrite) if way == "undo" else history.redo(overwrite=overwrite))
        for each in done[:_MOST_RESTORED]:
            self._note(to_one_line(f"{each.status}  {each.path}{f': {each.reason}' if each.reason else ''}"))
        if len(done) > _MOST_RESTORED:
            self._note(f"and {len(done) - _MOST_RESTORED:,} more files")
        if not done:
            self._note(f"there is nothing to {way}")
        if any(each.status == "conflict" for each in done):
            self._note(f"/{way} overwrite restores files that others have changed too; what was there is kept")
        for command in await list_commands_since(history, done) if way == "undo" else ():
            self._note(f"cannot be undone: {describe_untracked(command)}")

    async def _do_permissions(self, given: str) -> None:
        verb, _, grant_id = given.partition(" ")
        if verb == "revoke" and grant_id:
            if not await self._chat.session.revoke(grant_id.strip()):
                raise UsageError(f"there is no grant {grant_id!r}; /permissions lists them")
            self._note(f"{to_one_line(grant_id)} is revoked: the next such call is asked about again")
            return
        if given:
            raise UsageError("give nothing, or: /permissions revoke GRANT")
        rules = {f"rule {n}": str(rule) for n, rule in enumerate(self._chat.rules, 1)}
        grants = {each.grant_id: f"{each.scope}: {each.rule}" for each in await self._chat.session.grants()}
        self._list(rules | grants or {"none": "there are no rules and no grants: tools that change something ask"})

    async def _do_show(self, given: str) -> None:
        number = int(given) if given.isascii() and given.isdecimal() else None
        if (given and number is None) or not self._chat.show_result(number):
            raise UsageError("there is no such tool result; /show shows the last one, /show N the one of that number")

    async def _do_copy(self, _: str) -> None:
        text = self._chat.last_answer
        if not text:
            raise UsageError("there is no answer to copy yet")
        self._chat.copy_text(text[:_MAX_COPIED])
        self._note(f"{min(len(text), _MAX_COPIED):,} characters were sent to the clipboard of the terminal (OSC 52)")

    async def _do_quit(self, _: str) -> None:
        self._chat.close()
