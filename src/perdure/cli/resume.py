"""`perdure resume`: go on with a run that was cut off. Above: `main.py`. Below: `drive.py`."""

from typing import Any

import click

from .run import agent_options, showing_options, wish_of


@click.command()
@click.argument("session_id", metavar="ID")
@agent_options
@showing_options
@click.pass_context
def resume(context: click.Context, /, session_id: str, **options: Any) -> None:
    """Finish the last run of session ID, which was cut off by a crash, a kill or a power cut.

    Calls that had finished keep their results. Calls that had been started are made again only if that does no harm;
    the model is told that nobody knows what became of the others. The agent is made as it was for that run, from the
    files that lie here now.
    """
    from .drive import carry_out
    from .order import Order

    wish = wish_of(options)
    context.exit(carry_out(Order(session_id=session_id, resume=True, wish=wish, **options)))
