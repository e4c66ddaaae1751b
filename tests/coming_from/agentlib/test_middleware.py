"""Middleware around runs, steps and tools, as AgentLIB's reference describes `Middleware` and its context."""

from perdure import Agent, Middleware, MiddlewareFailed, ToolContext, tool
from perdure.events import RunStarted
from perdure.testing import Recorder, ScriptedModel, call
from perdure.tools import after, before
from tests.coming_from.outcomes import results_of
from tests.coming_from.shows import shows


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@shows(
    "agentlib",
    "Middleware",
    "Middleware.name",
    "Middleware.scope",
    "Middleware.run",
    "NextFn",
    "MiddlewareContext",
    "MiddlewareContext.ctx",
    "MiddlewareContext.tool",
    "MiddlewareScope",
    'MiddlewareScope."run:before"',
    'MiddlewareScope."run:after"',
    'MiddlewareScope."step:before"',
    'MiddlewareScope."step:after"',
    'MiddlewareScope."tool:before"',
    'MiddlewareScope."tool:after"',
)
async def test_middleware_is_called_before_and_after_runs_steps_and_tools():
    trace: list[str] = []

    async def around_run(call_next, run):
        trace.append(f"run:before {run.messages[-1].text} {run.session_id}")
        outcome = await call_next()
        trace.append(f"run:after {outcome.text}")
        return outcome

    async def around_turn(call_next, run):
        trace.append(f"step:before {run.state.turns + 1}")
        reply = await call_next()
        trace.append(f"step:after {run.state.turns} {[each.name for each in reply.tool_calls]}")
        return reply

    async def around_tool(call_next, arguments, context: ToolContext):
        trace.append(f"tool:before {context.name} {arguments} {context.deps}")
        result = await call_next()
        trace.append(f"tool:after {result}")
        return result

    audit = Middleware(name="audit", run=around_run, turn=around_turn, tool=around_tool)
    model = ScriptedModel(call("add", a=2, b=3), "Five.")
    seen = Recorder()
    agent = Agent(model, tools=[add], middleware=[audit], deps="ada")
    await agent.session("s").run("2 + 3?", watchers=[seen])
    assert trace == [
        "run:before 2 + 3? s",
        "step:before 1",
        "step:after 1 ['add']",
        "tool:before add {'a': 2, 'b': 3} ada",
        "tool:after 5",
        "step:before 2",
        "step:after 2 []",
        "run:after Five.",
    ]
    assert seen.of(RunStarted)[0].middleware == ("audit",)


@shows("agentlib", "Middleware.name", "Middleware.scope", "Middleware.run", "NextFn")
async def test_middleware_with_one_scope_is_called_for_that_one_and_its_errors_name_it():
    called: list[str] = []

    async def skip_the_tool(call_next, arguments, context):
        called.append(context.name)
        return 6

    async def broken(call_next, run):
        raise ValueError("out of paper")

    model = ScriptedModel(call("add", a=2, b=3), "Six.")
    outcome = await Agent(model, tools=[add], middleware=[Middleware(name="liar", tool=skip_the_tool)]).run("Go")
    assert (called, results_of(outcome)[0].text) == (["add"], "6")
    failed = await Agent(ScriptedModel("Hi."), middleware=[Middleware(name="printer", run=broken)]).run("Go")
    assert failed.status == "failed"
    assert isinstance(failed.error, MiddlewareFailed)
    assert "printer" in str(failed.error)


@shows("agentlib", 'MiddlewareScope."tool:before"', 'MiddlewareScope."tool:after"')
async def test_a_tool_alone_is_wrapped_to_change_its_arguments_or_see_its_result():
    results: list[str] = []
    doubled = before(add, lambda _, arguments: {**arguments, "a": arguments["a"] * 2})
    noted = after(doubled, lambda made, result: results.append(f"{made.name}: {result.text}, {result.status}"))
    await Agent(ScriptedModel(call("add", a=2, b=3), "Seven."), tools=[noted]).run("Go")
    assert results == ["add: 7, ok"]
