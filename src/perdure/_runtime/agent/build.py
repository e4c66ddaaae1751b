"""Assembly of a run from the agent, its extensions, the session's settings and the overrides for this run.

Precedence, highest first: the overrides of this run, its role, the session's configuration, then the agent and its
extensions. The same log and the same agent always build the same run, so an interrupted run continues as it began.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure._core.log.fold import State
from perdure._core.log.redaction import RelatedRunsRedaction
from perdure._core.log.store import Store, get_namespaced_session_id
from perdure._core.model.budget import Budget, budgeted
from perdure._core.model.protocol import Model, Request, ShortenRequest, model_info
from perdure._core.run.run import Run
from perdure._core.run.spec import (
    HistoryProcessor,
    PrivateRunBuilder,
    PrivateRunTask,
    RunOptions,
    RunPlace,
    RunSpec,
    ToolSelector,
    TurnWrapper,
)
from perdure._core.run.stop import (
    Guardrail,
    GuardrailVerdict,
    Limits,
    Step,
    StopCondition,
    any_of,
    evaluate_guardrails,
    rebuild_steps,
)
from perdure._core.run.turn import process_history
from perdure._core.tools.tool import Tool
from perdure._core.tools.toolbox import Toolbox
from perdure._core.values import checks
from perdure._core.values.error import ConfigError, ContextOverflow
from perdure._core.values.event import ADDED_TOOLS_NAME, PermissionDecided
from perdure._core.values.jsonable import replace_surrogates
from perdure._core.values.message import Message, ToolResult, merge_labels
from perdure._engines.private_settings import (
    ParentHistoryPrepender,
    build_private_limits,
    build_private_place,
    exclude_answer_and_handoff_tools,
    get_private_path,
)

from .active import choose_compaction, choose_model, choose_role, get_active_agent, get_session_configuration
from .extension import add_extension_rules, list_extension_rules
from .handoff import HANDED_BY_SETTING, HANDOFF_TRIAL_KEY, build_handoff_tool_name, make_handoff_step, make_handoff_tool
from .limits import choose_limits
from .output import OutputTypeSettings, add_output_type_settings
from .overrides import RunOverrides, merge_settings
from .spec import AgentSpec

if TYPE_CHECKING:
    from perdure._context.history.compaction import Compaction
    from perdure._context.role import Role
    from perdure._context.skills.skill import Skills
    from perdure._core.permission.gate import Gate


_NO_TOOLS = Toolbox()
logger = logging.getLogger("perdure")
_SHARED_SPEC = "_shared_run_spec"
"""Where an agent keeps the settings that its runs share."""
_OVERRIDES_OF_OPTIONS = frozenset({"deps", "engine", "settings"})
"""Overrides that change nothing but the options of a run, or nothing that is built here."""


def build_run(
    first_agent: AgentSpec[Any], place: RunPlace, state: State, overrides: RunOverrides, skills: Sequence[str] = ()
) -> Run:
    """Build the next run of a session whose conversation began with `first_agent`.

    `skills` are the names of the skills that are loaded as the run begins.
    """
    if _is_usual(first_agent, place, state, overrides):
        return Run(_build_usual_spec(first_agent, place, state, overrides), place, state)
    made: list[Run] = []

    def build_spec(current: Run | None = None, handed_to: str = "") -> RunSpec:
        agent = first_agent.find_reachable(handed_to) if handed_to else get_active_agent(first_agent, state)
        before = state.settings.get(HANDED_BY_SETTING, "") if current is None else current.agent_name
        back = None if agent is first_agent else first_agent.find_reachable(before)
        spec = _build_spec(
            agent, place, state, overrides, skills=skills, first_agent=first_agent, previous_agent=back, built_runs=made
        )
        if current is not None:
            check_deps(spec.toolbox, spec.options.deps)
        return (
            replace(spec, between_turns=[make_handoff_step(build_spec), *spec.between_turns])
            if first_agent.handoffs
            else spec
        )

    run = Run(build_spec(), place, state)
    made.append(run)
    if first_agent.handoffs:
        run.scratch[HANDOFF_TRIAL_KEY] = build_spec
    return run


def check_deps(toolbox: Toolbox, deps: Any) -> None:
    """Raise `ConfigError` if one of the tools of a run needs `deps`, and the run has none."""
    tool = toolbox.tool_needing_deps
    if tool is not None and deps is None:
        raise ConfigError(
            f"tool {tool.name!r} needs deps ({tool.needed_deps}), and there are none: give them to the agent, "
            "Agent(deps=…), or to each run, run(…, deps=…)"
        )


def _is_usual(agent: AgentSpec[Any], place: RunPlace, state: State, overrides: RunOverrides) -> bool:
    """Return True if a run depends only on its agent and its own options, so that shared settings can be used."""
    return (
        agent.has_fixed_runs
        and not (state.settings or state.skills or ADDED_TOOLS_NAME in state.kept_values)
        and place.parent is None
        and not place.budgets
        and (not overrides or overrides.keys() <= _OVERRIDES_OF_OPTIONS)
    )


def _build_usual_spec(agent: AgentSpec[Any], place: RunPlace, state: State, overrides: RunOverrides) -> RunSpec:
    """Build the settings of a run from those that all runs of its agent share, which are cached."""
    shared: RunSpec | None = vars(agent).get(_SHARED_SPEC)
    if shared is None:
        shared = _build_spec(
            agent, place, State(), {}, skills=(), first_agent=agent, previous_agent=None, built_runs=()
        )
        vars(agent)[_SHARED_SPEC] = shared
    update_grants_from_log(shared.gate, place.session_id, state, place.log.store)
    options = _build_options(agent, overrides, agent.limits, None) if overrides else shared.options
    return replace(shared, options=options, guardrails=_start_guardrails(agent, place, state))


def _build_spec(
    agent: AgentSpec[Any],
    place: RunPlace,
    state: State,
    overrides: RunOverrides,
    *,
    skills: Sequence[str],
    first_agent: AgentSpec[Any],
    previous_agent: AgentSpec[Any] | None,
    built_runs: Sequence[Run],
) -> RunSpec:
    """Build the settings of a run from the active agent, its extensions, the session's settings and the overrides.

    `first_agent` is the agent that the session was begun with, `previous_agent` the one to hand the conversation back
    to. `built_runs` is empty at first and will contain the run once it exists.
    """
    configured, parent = get_session_configuration(first_agent, agent, state), place.parent
    role = choose_role(first_agent, agent, overrides, configured)
    model = choose_model(first_agent, agent, overrides, role, configured)
    ledgers = _collect_budgets(first_agent, agent, overrides, place)
    toolbox = build_toolbox(agent, overrides, agent.all_skills(), [*state.skills, *skills])
    if ADDED_TOOLS_NAME in state.kept_values:
        toolbox = _restore_added_tools(agent, toolbox, state, place.run_id)
    if previous_agent is not None:
        toolbox = _add_handback_tool(previous_agent, agent, toolbox)
    if agent is first_agent and place.parent is None:  # the gates of other agents may be shared with this one
        _warn_of_unmatched_rules(overrides.get("permission", agent.permission), agent, toolbox)
    limits = choose_limits(first_agent, agent, overrides, toolbox)
    if limits.max_cost_usd is not None and model_info(model).price is None:
        raise ConfigError(f"max_cost_usd needs a model whose price is known, and {model_info(model).name!r} has none")
    compaction = _add_summary_budgets(choose_compaction(agent, configured), ledgers, place.redaction)
    model = _wrap_model(agent, model, compaction, ledgers, built_runs)
    if agent.has_late_tools:
        _warn_of_missing_tools(agent, toolbox, limits)
    asked = _plan_output(agent, toolbox, model, overrides, configured)
    if asked.answer_tool and limits.allowed_tools is not None:  # without it, the run could not give its answer
        limits = replace(limits, allowed_tools=(*limits.allowed_tools, asked.answer_tool))
    upkeep = _collect_from_extensions(agent, "between_turns")
    return RunSpec(
        options=_build_options(agent, overrides, limits, parent),
        _model=model,
        toolbox=asked.toolbox,
        instructions=_compose_instructions(agent, asked, agent.all_skills(), role[0]),
        gate=_build_gate(first_agent, agent, place, state, overrides),
        seal_decision=_seal_decision,
        project=get_project_root(agent),
        project_labels=_list_instruction_labels(agent, role[0]),
        stop=_combine_stop_conditions(agent),
        guardrails=_start_guardrails(agent, place, state),
        output_validators=asked.accept,
        output_spec=asked.spec,
        between_turns=upkeep if compaction is None else [*upkeep, compaction],
        reminders=_collect_from_extensions(agent, "reminders"),
        compaction=None if compaction is None else compaction.compact,
        wrap_tool=_get_tool_wrapper(agent),
        tool_selectors=_list_tool_selectors(agent),
        budgets=ledgers,
        spare_tools=agent.spare_toolbox if agent.spare_tools else _NO_TOOLS,
        has_late_tools=agent.has_late_tools,
        tool_caller=_call_tools,
        has_output_type=overrides.get("output") is not None,
        answer_tool=asked.answer_tool,
        private_run_builder=_make_private_run_builder(first_agent, agent, overrides),
        around_turn=_build_turn_wrapper(agent),
    )


async def _call_tools(run: Run, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[ToolResult]:
    """Carry out tool calls of an engine."""
    from perdure._core.run.tool_calls.direct import call_tools  # at first use, which few runs have

    return await call_tools(run, calls)


# -- private runs of engines -------------------------------------------------------------------------------------------


def _make_private_run_builder(
    first_agent: AgentSpec[Any], agent: AgentSpec[Any], overrides: RunOverrides
) -> PrivateRunBuilder:
    """Return the function that builds private runs below a run of this agent, which has these overrides."""
    handoffs = [build_handoff_tool_name(each.name) for each in first_agent.reachable] if first_agent.handoffs else []

    def build_private_run(parent: Run, task: PrivateRunTask) -> Run:
        made: list[Run] = []
        place, state = build_private_place(parent, task), parent.state.get_child(get_private_path(parent, task.name))
        toolbox = exclude_answer_and_handoff_tools(parent, handoffs) if task.offers_tools else _NO_TOOLS
        limits = build_private_limits(parent, task, toolbox)
        spec = _build_spec(
            agent,
            place,
            parent.state,  # which has the settings of the session
            _without_output(overrides),
            skills=(),
            first_agent=first_agent,
            previous_agent=None,
            built_runs=made,
        )
        history = ParentHistoryPrepender(
            parent.state.view, parent.options.history_processor, keeps_tools=task.offers_tools
        )
        spec = replace(
            spec,
            options=replace(parent.options, limits=limits, history_processor=history),
            toolbox=toolbox,
            gate=parent.gate,
            guardrails=_start_guardrails(agent, place, state),
            output_validators=task.output_validators,
        )
        made.append(Run(spec, place, state))
        return made[0]

    return build_private_run


def _without_output(overrides: RunOverrides) -> RunOverrides:
    plain: RunOverrides = {**overrides}
    plain.pop("output", None)
    return plain


def build_instructions(first_agent: AgentSpec[Any], state: State, overrides: RunOverrides) -> str:
    """Return the system prompt that the next run of a session sends, without building the run."""
    agent = get_active_agent(first_agent, state)
    configured = get_session_configuration(first_agent, agent, state)
    role = choose_role(first_agent, agent, overrides, configured)
    model = choose_model(first_agent, agent, overrides, role, configured)
    toolbox = build_toolbox(agent, overrides, agent.all_skills(), state.skills)
    if agent is not first_agent:
        before = first_agent.find_reachable(state.settings.get(HANDED_BY_SETTING, ""))
        toolbox = _add_handback_tool(before, agent, toolbox)
    plan = _plan_output(agent, toolbox, model, overrides, configured)
    return _compose_instructions(agent, plan, agent.all_skills(), role[0])


def _plan_output(
    agent: AgentSpec[Any], toolbox: Toolbox, model: Model, overrides: RunOverrides, configured: dict[str, Any]
) -> OutputTypeSettings:
    """Return the tools, base instructions and output validators of a run, with what its output type requires."""
    base = overrides.get("instructions", configured.get("instructions", agent.instructions))
    texts = [each for each in (base, *[extension.instructions for extension in agent.extensions]) if each]
    validators = [*agent.output_validators, *_collect_from_extensions(agent, "output_validators")]
    return add_output_type_settings(
        overrides.get("output"), model_info(model), OutputTypeSettings(toolbox, "\n\n".join(texts), validators)
    )


def _build_turn_wrapper(agent: AgentSpec[Any]) -> TurnWrapper | None:
    """Return the middleware of an agent around its turns, as one function; None if there is none."""
    if not (layers := agent.middleware_layers):
        return None
    from .middleware import build_turn_wrapper  # at first use: most agents have none

    return build_turn_wrapper(layers)


def _combine_history_processors(agent: AgentSpec[Any]) -> HistoryProcessor:
    """Return the history processors of the agent and its extensions, each applied to the result of the one before."""
    listed = [agent.history_processor, *[each.history_processor for each in agent.extensions]]
    processors = [each for each in listed if each is not None]

    async def process_in_order(messages: Sequence[Message]) -> Sequence[Message]:
        for processor in processors:
            messages = await process_history(processor, messages)
        return messages

    return process_in_order


def _build_options(
    agent: AgentSpec[Any], overrides: RunOverrides, limits: Limits, parent: Run | None
) -> RunOptions[Any]:
    """Return the agent's run options, with the overrides of this run applied.

    A child run waits for answers at least as long as its parent.
    """
    changes: dict[str, Any] = {name: value for name, value in overrides.items() if name in {"settings", "deps"}}
    if "settings" in changes:
        changes["settings"] = merge_settings(agent.settings, changes["settings"])
    own: Any = agent.deps
    if "deps" in changes and isinstance(own, dict) and isinstance(changes["deps"], dict):
        changes["deps"] = own | changes["deps"]
    if limits is not agent.limits:
        changes["limits"] = limits
    if any(each.history_processor is not None for each in agent.extensions):
        changes["history_processor"] = _combine_history_processors(agent)
    if parent is not None:
        changes["interactive"] = agent.interactive and parent.options.interactive
        changes["answer_timeout_seconds"] = max(agent.answer_timeout_seconds, parent.options.answer_timeout_seconds)
    return replace(agent.run_options, **changes) if changes else agent.run_options


def _collect_from_extensions(agent: AgentSpec[Any], field: str) -> list[Any]:
    """Return the items in this field of all extensions of an agent, in the order in which they are listed."""
    return [each for extension in agent.extensions for each in getattr(extension, field)]


# -- the model ---------------------------------------------------------------------------------------------------------


def _collect_budgets(
    first_agent: AgentSpec[Any], agent: AgentSpec[Any], overrides: RunOverrides, place: RunPlace
) -> Sequence[Budget]:
    """Return the budgets of this run: its own, those of its agent and of a first agent that limits it, and those from
    above: of its parent runs, or of the session that gave the task.
    """
    above = place.budgets if place.parent is None else place.parent.spec.budgets
    first = first_agent.budget if first_agent.narrow_handoffs else None
    for each in (first, agent.budget, overrides.get("budget")):
        above = above if each is None or each in above else [each, *above]
    return above


def _wrap_model(
    agent: AgentSpec[Any],
    model: Model,
    compaction: "Compaction | None",
    budgets: Sequence[Budget],
    built_runs: Sequence[Run],
) -> Model:
    """Wrap the model with the wrappers of extensions, then compaction on context overflow, then budgets."""
    for extension in agent.extensions:
        if extension.wrap_model is not None:
            model = extension.wrap_model(model)
            if not callable(getattr(model, "stream", None)):
                checks.close_coroutine(model)
                raise ConfigError(f"the wrap_model of {extension.name!r} returned {model!r}: it has to return a model")
    if compaction is not None:
        from perdure._core.model.wrappers import compacted  # at first use, as for a budget

        model = compacted(model, _compact_on_overflow(built_runs))
    for ledger in budgets:
        model = budgeted(model, ledger)
    return model


def _add_summary_budgets(
    compaction: "Compaction | None", budgets: Sequence[Budget], redaction: RelatedRunsRedaction
) -> "Compaction | None":
    """Return a compaction whose own model, if it has one, gets the same budgets and redaction as the agent's."""
    redactor = redaction.redactor
    if compaction is None or compaction.model is None or not (budgets or redactor):
        return compaction
    model = compaction.model
    for ledger in budgets:
        model = budgeted(model, ledger)
    return replace(compaction, model=model if redactor is None else redactor.model(model))


def _compact_on_overflow(built_runs: Sequence[Run]) -> ShortenRequest:
    """Return a callback that compacts the conversation and rebuilds a request that overflowed the context window."""

    async def compact(_too_long: Request, error: ContextOverflow) -> Request | None:
        run = built_runs[0]
        if not await run.compact("overflow", error):
            return None
        view, shape = run.state.view, run.options.history_processor
        request = run.build_request(view if shape is None else await process_history(shape, view))
        await run.emit(*run.build_request_events(request))
        return replace(request, messages=[run.redaction.redact_value(each) for each in request.messages])

    return compact


# -- tools and instructions --------------------------------------------------------------------------------------------


def build_toolbox(
    agent: AgentSpec[Any], overrides: RunOverrides, skills: "Skills | None", loaded: Iterable[str]
) -> Toolbox:
    """Return the agent's tools plus those of loaded skills; a skill's tool never replaces an existing one."""
    box = _get_own_tools(agent) if "tools" not in overrides else _wrap_tools(agent, overrides["tools"])
    found = [] if skills is None else [tool for name in loaded if name in skills for tool in skills.get(name).tools]
    more: dict[str, Tool[..., Any]] = {}
    if skills is not None and "skill_resource" not in box and _has_hidden_parts(skills, loaded):
        from perdure._context.skills.tools import skill_resource_tool  # at first use: most agents have no skills

        found.append(skill_resource_tool(skills))
    for each in found:
        if each.name not in box:
            more.setdefault(each.name, each)
    return box.with_tools(_wrap_tools(agent, more.values())) if more else box


def _get_own_tools(agent: AgentSpec[Any]) -> Toolbox:
    """Return the agent's tools, with those of its extensions that are known by now."""
    late = agent.list_late_tools() if agent.has_late_tools else ()
    return agent.toolbox.with_tools(_wrap_tools(agent, late)) if late else agent.toolbox


def _warn_of_unmatched_rules(gate: "Gate | None", agent: AgentSpec[Any], toolbox: Toolbox) -> None:
    """Warn of permission rules that match no tool of a run."""
    if gate is not None:
        from .unmatched_rules import warn_of_unmatched_rules  # at first use: many agents have no gate

        warn_of_unmatched_rules(gate, agent, tuple(toolbox))


def _warn_of_missing_tools(agent: AgentSpec[Any], toolbox: Toolbox, limits: Limits) -> None:
    """Warn of allowed tools that are not there: their server may be down, and offer them later."""
    missing = [each for each in limits.allowed_tools or () if each not in toolbox and each not in agent.spare_toolbox]
    if missing:
        logger.warning("allowed_tools has tools that are not there at the moment: %s", ", ".join(missing))


def _has_hidden_parts(skills: "Skills", loaded: Iterable[str]) -> bool:
    """Return True if a loaded skill that is hidden from the model has texts which the model can read separately."""
    known = [skills.get(name) for name in loaded if name in skills]
    return any(each.hidden and (each.sections or each.resources) for each in known)


def _restore_added_tools(agent: AgentSpec[Any], toolbox: Toolbox, state: State, run_id: str) -> Toolbox:
    """Return the toolbox with the tools that were added to this run, or to the session, before."""
    from perdure._core.run.toolset import find_added_tools  # at first use, which few sessions have

    found = find_added_tools(state, agent.name, run_id, agent.spare_toolbox)
    return toolbox.with_tools(_wrap_tools(agent, [each for each in found if each.name not in toolbox]))


def _wrap_tools(agent: AgentSpec[Any], tools: Iterable[Tool[..., Any]]) -> Toolbox:
    """Return a toolbox of these tools, wrapped by the agent's vault and extensions."""
    wrap = _get_tool_wrapper(agent)
    return Toolbox(tools if wrap is None else [wrap(each) for each in tools])


def _get_tool_wrapper(agent: AgentSpec[Any]) -> "Callable[[Tool[..., Any]], Tool[..., Any]] | None":
    """Return the function that wraps each tool of an agent; None if nothing wraps them."""
    return agent.wrap_tool if agent.has_tool_wrappers else None


def _compose_instructions(
    agent: AgentSpec[Any], output_plan: OutputTypeSettings, skills: "Skills | None", role: "Role | None"
) -> str:
    """Compose the system prompt, its parts in a fixed order.

    Tools that are not sent to the model before it loads them have no line in it.
    """
    prompts = [each.prompt for each in _select_first_tools(agent, output_plan.toolbox) if each.prompt]
    if agent.project is None and skills is None and role is None:
        return replace_surrogates("\n\n".join([part for part in (output_plan.instructions, *prompts) if part]))
    from perdure._context.role import compose_instructions  # at first use: most agents have none

    return replace_surrogates(
        compose_instructions(
            base=output_plan.instructions,
            project="" if agent.project is None else agent.project.text(),
            skills="" if skills is None else skills.catalogue(),
            role=role,
            tools=prompts,
        )
    )


def _list_instruction_labels(agent: AgentSpec[Any], role: "Role | None") -> tuple[str, ...]:
    """Return the labels of instructions that others may have written: those of the project, and of the role."""
    project = () if agent.project is None else agent.project.labels
    return merge_labels(project, () if role is None else role.labels)


def _list_tool_selectors(agent: AgentSpec[Any]) -> list[ToolSelector]:
    return [each.select_tools for each in agent.extensions if each.select_tools is not None]


def _select_first_tools(agent: AgentSpec[Any], toolbox: Toolbox) -> Toolbox:
    """Return the tools that the model is sent as long as it has loaded none."""
    for select in _list_tool_selectors(agent):
        toolbox = select(toolbox, ())
    return toolbox


def _add_handback_tool(previous_agent: AgentSpec[Any], agent: AgentSpec[Any], toolbox: Toolbox) -> Toolbox:
    """Add the tool with which an agent hands the conversation back to the agent that had it before."""
    back = make_handoff_tool(previous_agent.name, previous_agent.description)
    return toolbox if back.name in toolbox else toolbox.with_tools(_wrap_tools(agent, [back]))


# -- the rules ---------------------------------------------------------------------------------------------------------


def _build_gate(
    first_agent: AgentSpec[Any], agent: AgentSpec[Any], place: RunPlace, state: State, overrides: RunOverrides
) -> "Gate | None":
    """Build the permission gate of a run, with the session's grants, limited by the gate of the parent run."""
    above = None if place.parent is None else place.parent.gate
    if "permission" in overrides:
        if overrides.get("narrow_permission", True) and has_gate(first_agent, agent):
            above = combine_gates(first_agent, agent, above, is_restricted=place.is_restricted)
        gate = _limit_gate(overrides["permission"], agent, above)
    else:
        gate = combine_gates(first_agent, agent, above, is_restricted=place.is_restricted)
    update_grants_from_log(gate, place.session_id, state, place.log.store)
    return gate


def has_gate(first_agent: AgentSpec[Any], agent: AgentSpec[Any]) -> bool:
    """Return True if the active agent, or a first agent that limits it, has a permission gate."""
    return agent.permission is not None or (first_agent.narrow_handoffs and first_agent.permission is not None)


def combine_gates(
    first_agent: AgentSpec[Any],
    agent: AgentSpec[Any],
    gate_above: "Gate | None" = None,
    *,
    is_restricted: bool = True,
) -> "Gate | None":
    """Return the active agent's permission gate, restricted by those of the first agent and of the parent run.

    The first agent is the one that the conversation began with; it limits others only with `narrow_handoffs`.
    """
    if agent is first_agent or not first_agent.narrow_handoffs:
        return _limit_gate(agent.permission, agent, gate_above, is_restricted=is_restricted)
    first = _limit_gate(first_agent.permission, first_agent, gate_above, is_restricted=is_restricted)
    return _limit_gate(agent.permission, agent, first)


def _limit_gate(
    gate: "Gate | None", agent: AgentSpec[Any], gate_above: "Gate | None", *, is_restricted: bool = True
) -> "Gate | None":
    """Return an agent's gate with the rules of its extensions, limited by the gate above if it is restricted.

    Without a gate of its own it has the one above, and the rules of its extensions narrow that one.
    """
    if gate_above is None:
        return add_extension_rules(gate, agent.extensions)
    from perdure._core.permission.inherited import (  # at first use: for subagents and handoffs
        narrow_gate,
        restrict_gate,
    )

    if gate is None:
        return narrow_gate(gate_above, list_extension_rules(agent.extensions))
    own = add_extension_rules(gate, agent.extensions)
    return restrict_gate(own, gate_above) if is_restricted else own


def build_session_gate(
    first_agent: AgentSpec[Any], agent: AgentSpec[Any], session_id: str, state: State, store: Store
) -> "Gate | None":
    """Build the permission gate of a session between runs, with the session's grants."""
    gate = combine_gates(first_agent, agent)
    update_grants_from_log(gate, session_id, state, store)
    return gate


def update_grants_from_log(gate: "Gate | None", session_id: str, state: State, store: Store) -> None:
    """Update the grants of a chain of permission gates from a session's log: add new ones, and remove revoked ones."""
    if state.remembered_decisions:
        from perdure._core.permission.inherited import list_chain_grants  # at first use: for remembered answers
        from perdure._runtime.session.seals import list_trusted_session_keys, select_sealed_decisions

        full_id = get_namespaced_session_id(store, session_id)
        keys = list_trusted_session_keys(full_id, state, store)
        remembered = select_sealed_decisions(state.remembered_decisions, store)
        for level, grants in list_chain_grants(gate):
            grants.sync_with_log(remembered, full_id, keys, level=level)


def _seal_decision(decision: PermissionDecided, store: Store) -> PermissionDecided:
    """Return a decision that is remembered with its seal."""
    from perdure._runtime.session.seals import seal_decision  # at first use: few answers are remembered

    return seal_decision(decision, store)


def get_project_root(agent: AgentSpec[Any]) -> str:
    """Return the root folder of an agent's project; an empty text if it has none."""
    return "" if agent.project is None else str(agent.project.root)


def _combine_stop_conditions(agent: AgentSpec[Any]) -> StopCondition | None:
    """Combine the stop conditions of the agent and its extensions into one; None if there are none."""
    conditions: list[StopCondition] = [] if agent.stop is None else [agent.stop]
    conditions += _collect_from_extensions(agent, "stop")
    return any_of(*conditions) if len(conditions) > 1 else (conditions[0] if conditions else None)


def _start_guardrails(agent: AgentSpec[Any], place: RunPlace, state: State) -> list[Guardrail]:
    """Start the guardrails of a run; of a resumed run, pass them the turns before the interruption."""
    guardrails = [
        _start_guardrail(each) for each in (*agent.guardrails, *_collect_from_extensions(agent, "guardrails"))
    ]
    if guardrails and state.is_interrupted and state.run is not None and state.run.run_id == place.run_id:
        steps = rebuild_steps(state.messages, state.first_message_index)
        last = state.last_reply  # the loop is about to pass it to the guardrails
        missed = [each for each in steps if each.reply is not last]
        return [_pass_missed_steps(each, missed) for each in guardrails] if missed else guardrails
    return guardrails


def _start_guardrail(start: Callable[[], Guardrail]) -> Guardrail:
    guardrail = start()
    if not callable(guardrail):
        checks.close_coroutine(guardrail)
        raise ConfigError(f"guardrails: {start!r} returned {guardrail!r}: it has to return a function of a step")
    return guardrail


def _pass_missed_steps(guardrail: Guardrail, missed: Sequence[Step]) -> Guardrail:
    """Return a guardrail that is first passed the turns before the interruption of its run."""
    left = list(missed)

    async def resumed(step: Step) -> GuardrailVerdict:
        while left:
            await evaluate_guardrails([guardrail], left.pop(0))
        tripped = await evaluate_guardrails([guardrail], step)
        return tripped[0][1] if tripped else None

    resumed.__name__ = getattr(guardrail, "__name__", type(guardrail).__name__)  # which the log shows
    resumed.__module__ = getattr(guardrail, "__module__", "")
    return resumed
