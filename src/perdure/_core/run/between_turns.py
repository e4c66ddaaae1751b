"""Work between two turns of a run: store pending changes in the log, then compact the history.

Events of the host program are stored too; compaction shortens the history.

The loop calls this before each request to the model and before its tool calls are executed. None of it is shown to the
model.
"""

from inspect import isawaitable

from perdure._core.values.event import GrantRevoked

from .run import Run


async def run_between_turns(run: Run) -> None:
    """Log pending changes (closed display slots, revoked permissions), then call the run's `between_turns` functions.

    Compaction is such a function. Events of the host program are stored too.
    """
    if run.mailbox.log_only_events:
        await store_log_only_events(run)
    for upkeep in run.spec.between_turns:
        work = upkeep(run)
        if isawaitable(work):
            await work


async def store_log_only_events(run: Run) -> None:
    """Store events that the model is not sent: closed slots, revoked grants, and events of the host program."""
    events, names = run.mailbox.take_log_only_events()
    await run.emit(*[run.stamp_event(each) for each in events], entry_ids=names)
    for event in events:
        if isinstance(event, GrantRevoked):
            from perdure._core.permission.inherited import list_chain_grants  # at first use: few programs revoke grants

            for _, grants in list_chain_grants(run.gate):
                grants.forget(event.grant_id, run.full_session_id)
