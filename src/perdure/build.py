"""What a run is made of, stacked in this one place. Above: `driver.py`, `subagent.py`. Below: `core`, and all parts.

From outside to inside: what was asked of this run, its role, what the session was told, then the agent and its
extensions. The same log and the same agent always make the same run, so one that was cut off goes on as it began.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from .core.cache import PrefixWatch
from .core.error import ConfigError, ContextOverflow
from .core.event import Entry
from .core.fanout import Fanout
from .core.fold import State
from .core.gate import held_below
from .core.ledger import Ledger, budgeted
from .core.loop import shaped
from .core.mailbox import Mailbox
from .core.model import Compact, Model, Request, info_of
from .core.permission import Gate, Permissions
from .core.plain import clean
from .core.run import Run
from .core.secrecy import Secrecy
from .core.stop import Guardrail, Limits, StopCondition, any_of, steps_of
from .core.store import Log
from .core.tool import Tool
from .core.toolbox import Toolbox
from .extension import ruled
from .output import Held, applied
from .override import Options
from .speaking import HANDED_BY, model_of, role_of, speaking, told_to

if TYPE_CHECKING:
    from .agent import Agent
    from .context.compaction import Compaction
    from .context.role import Role
    from .context.skills import Skills


class Place(Struct, frozen=True, kw_only=True, eq=False):
    """Where a run happens: in which session, after what, under whom."""

    session_id: str
    run_id: str
    log: Log
    state: State
    fanout: Fanout[Entry]
    mailbox: Mailbox
    prefixes: PrefixWatch
    may_wait: bool = True
    """Whether it may end as `waiting`, because it can be resumed."""
    parent: Run | None = None
    """The run whose call it carries out."""
    loading: Sequence[str] = ()
    """The skills that come into the conversation as it begins."""
    secrecy: Secrecy = field(default_factory=Secrecy)
    """What it keeps to itself, with all who work for the same session, or for whom this session works."""


def build(
    first: "Agent[Any]", place: Place, overrides: Options, stands_for: Run | None = None, handed_to: str = ""
) -> Run:
    """Everything that a run of an agent needs.

    `stands_for` is the run that goes on, when this is what it is to become because the conversation is `handed_to`
    another agent.
    """
    agent = first.speaking(handed_to) if handed_to else speaking(first, place.state)
    told, parent = told_to(first, agent, place.state), place.parent
    role = role_of(first, agent, overrides, told)
    model = model_of(agent, overrides, role, told)
    limits = overrides.get("limits", agent.limits)
    if limits.max_cost_usd is not None and info_of(model).price is None:
        raise ConfigError(f"max_cost_usd needs a model whose price is known, and {info_of(model).name!r} has none")
    made: list[Run] = []
    ledgers = _ledgers(agent, overrides, parent)
    model, compaction = _wrapped(agent, model, ledgers, made), _compaction(agent, ledgers, place.secrecy)
    skills = agent.all_skills()
    toolbox = toolbox_of(agent, overrides, skills, [*place.state.skills, *place.loading])
    if agent is not first:
        before = place.state.configured.get(HANDED_BY, "") if stands_for is None else stands_for.agent_name
        toolbox = _with_a_way_back(first.speaking(before), agent, toolbox)
    limits = _within(first, toolbox, limits)
    base = overrides.get("instructions", told.get("instructions", agent.instructions))
    words = [each for each in (base, *[extension.instructions for extension in agent.extensions]) if each]
    plain = Held(toolbox, "\n\n".join(words), [*agent.accept, *_all(agent, "accept")])
    asked = applied(overrides.get("output"), info_of(model), plain)
    run = Run(
        session_id=place.session_id,
        run_id=place.run_id,
        agent_name=agent.name,
        model=model,
        log=place.log,
        state=place.state,
        fanout=place.fanout,
        clock=agent.clock,
        toolbox=asked.toolbox,
        mailbox=place.mailbox,
        instructions=_instructions(agent, asked, skills, role[0]),
        settings=overrides.get("settings", agent.settings),
        limits=limits,
        gate=_gate(ruled(overrides.get("permission", agent.permission), agent.extensions), place),
        stop=_stop(agent),
        guardrails=_guardrails(agent, place),
        accept=asked.accept,
        shape=agent.shape,
        output_spec=asked.spec,
        prefixes=place.prefixes,
        deps=overrides.get("deps", agent.deps),
        patience_seconds=agent.patience_seconds,
        may_wait=place.may_wait,
        interactive=agent.interactive and (parent is None or parent.interactive),
        upkeep=[
            *_all(agent, "upkeep"),
            *([] if compaction is None else [compaction]),
        ],
        reminders=_all(agent, "reminders"),
        compaction=None if compaction is None else compaction.compact,
        secrecy=place.secrecy,
        wrap_tool=_tool_wrapper(agent),
        parent=parent,
        ledgers=ledgers,
    )
    made.append(stands_for or run)
    if first.handoffs:
        _let_hand_over(run, first, place, overrides)
    return run


def _all(agent: "Agent[Any]", field: str) -> list[Any]:
    """What the extensions of an agent have of this kind, in the order of listing."""
    return [each for extension in agent.extensions for each in getattr(extension, field)]


# -- who answers -------------------------------------------------------------------------------------------------------


def _ledgers(agent: "Agent[Any]", overrides: Options, parent: Run | None) -> list[Ledger]:
    """The budget that it shares, and those of the runs above it."""
    own, above = overrides.get("ledger", agent.ledger), [] if parent is None else [*parent.ledgers]
    return above if own is None or own in above else [own, *above]


def _wrapped(agent: "Agent[Any]", model: Model, ledgers: Sequence[Ledger], made: Sequence[Run]) -> Model:
    """The model with what stands around it. `made` will hold the run, which does not exist yet."""
    for extension in agent.extensions:
        if extension.wrap_model is not None:
            model = extension.wrap_model(model)
    if agent.compaction is not None:
        from .core.wrap import compacted  # at first use, as for a budget

        model = compacted(model, _shorter(made))
    for ledger in ledgers:
        model = budgeted(model, ledger)
    return model


def _compaction(agent: "Agent[Any]", ledgers: Sequence[Ledger], secrecy: Secrecy) -> "Compaction | None":
    """The agent's compaction. When another model sums up, it has the same budgets, and is told no secret either."""
    compaction, redactor = agent.compaction, secrecy.redactor
    if compaction is None or compaction.model is None or not (ledgers or redactor):
        return compaction
    model = compaction.model
    for ledger in ledgers:
        model = budgeted(model, ledger)
    return replace(compaction, model=model if redactor is None else redactor.model(model))


def _shorter(made: Sequence[Run]) -> Compact:
    """What is sent in the place of a request that was too long."""

    async def compact(_too_long: Request, error: ContextOverflow) -> Request | None:
        run = made[0]
        if not await run.compact("overflow", error):
            return None
        view = run.state.view
        request = run.request(view if run.shape is None else await shaped(run.shape, view))
        await run.emit(*run.requested(request))
        return replace(request, messages=[run.secrecy.value(each) for each in request.messages])

    return compact


# -- what it knows and can do ------------------------------------------------------------------------------------------


def toolbox_of(agent: "Agent[Any]", overrides: Options, skills: "Skills | None", loaded: Iterable[str]) -> Toolbox:
    """Its tools, those of skills that were loaded, and a way to load the others.

    A tool of a skill never takes the place of one that is there.
    """
    box = agent.toolbox if "tools" not in overrides else _fitted(agent, overrides["tools"])
    found = [] if skills is None else [tool for name in loaded if name in skills for tool in skills.get(name).tools]
    more: dict[str, Tool[..., Any]] = {}
    for each in found:
        if each.name not in box:
            more.setdefault(each.name, each)
    return box.plus(_fitted(agent, more.values())) if more else box


def _within(first: "Agent[Any]", toolbox: Toolbox, limits: Limits) -> Limits:
    """The limits, without tools that are allowed to the run and that only another agent of this conversation has."""
    allowed = limits.allowed_tools
    if allowed is None or not first.handoffs:
        return limits
    from .subagents.handoff import handoff_name

    others = {name for each in first.reachable for name in (*each.toolbox.names, handoff_name(each))}
    return replace(limits, allowed_tools=tuple([each for each in allowed if each in toolbox or each not in others]))


def _fitted(agent: "Agent[Any]", tools: Iterable[Tool[..., Any]]) -> Toolbox:
    wrap = _tool_wrapper(agent)
    return Toolbox(tools if wrap is None else [wrap(each) for each in tools])


def _tool_wrapper(agent: "Agent[Any]") -> "Callable[[Tool[..., Any]], Tool[..., Any]] | None":
    """What is put around each tool: the vault innermost, so that nothing else sees a secret."""
    return agent.wrap_tool if agent.wraps_tools else None


def _instructions(agent: "Agent[Any]", asked: Held, skills: "Skills | None", role: "Role | None") -> str:
    """What the model is told first, in a fixed order."""
    prompts = [each.prompt for each in asked.toolbox if each.prompt]
    if agent.project is None and skills is None and role is None:
        return clean("\n\n".join([part for part in (asked.instructions, *prompts) if part]))
    from .context.instructions import composed  # at first use: most agents have none of it

    return clean(
        composed(
            base=asked.instructions,
            project="" if agent.project is None else agent.project.text(),
            skills="" if skills is None else skills.catalogue(),
            role=role,
            tools=prompts,
        )
    )


# -- whoever speaks ----------------------------------------------------------------------------------------------------


def _with_a_way_back(before: "Agent[Any]", agent: "Agent[Any]", toolbox: Toolbox) -> Toolbox:
    """An agent that was handed the conversation can hand it back to whoever spoke before."""
    from .subagents.handoff import handoff_tool

    back = handoff_tool(before)
    return toolbox if back.name in toolbox else toolbox.plus(_fitted(agent, [back]))


def _let_hand_over(run: Run, first: "Agent[Any]", place: Place, overrides: Options) -> None:
    """Let another agent speak once the conversation was handed over to it, and be told before if it could not."""
    from .subagents.handoff import TRIAL, handing_over

    def other(who: Run, name: str) -> Run:
        apart = replace(place, prefixes=PrefixWatch())  # the run that goes on keeps its own
        return build(first, apart, overrides, who, name)

    run.scratch[TRIAL] = other
    run.upkeep = [handing_over(other), *run.upkeep]


# -- what holds it back ------------------------------------------------------------------------------------------------


def _gate(gate: Gate | None, place: Place) -> Gate | None:
    """The gate, knowing what was decided earlier in this session. That of a child is held by its parent's."""
    if isinstance(gate, Permissions):
        gate.grants.follow(place.state.remembered, place.session_id)
    return held_below(gate, None if place.parent is None else place.parent.gate)


def _stop(agent: "Agent[Any]") -> StopCondition | None:
    conditions: list[StopCondition] = [] if agent.stop is None else [agent.stop]
    conditions += _all(agent, "stop")
    return any_of(*conditions) if len(conditions) > 1 else (conditions[0] if conditions else None)


def _guardrails(agent: "Agent[Any]", place: Place) -> list[Guardrail]:
    """The guardrails, which have seen what happened in this run before a crash."""
    guardrails = [start() for start in [*agent.guardrails, *_all(agent, "guardrails")]]
    state = place.state
    if guardrails and state.interrupted and state.run is not None and state.run.run_id == place.run_id:
        steps = steps_of(state.messages, state.first)
        last = state.unfollowed  # it is about to be looked at by the loop
        for step in [each for each in steps if each.reply is not last]:
            for guardrail in guardrails:
                guardrail(step)
    return guardrails
