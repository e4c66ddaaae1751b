"""`perdure config check`: the mistakes of a configuration file, and its permission rules that match no tool."""

import click

from perdure._cli.terminal.output import TerminalOutput, report_error, to_one_line, warn

from .config import path_argument, print_json, read_config_for_review


@click.command()
@path_argument
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
@click.pass_context
def check(context: click.Context, /, path: str, *, as_json: bool) -> None:
    """Check a configuration file and print one line per error. The exit code is 2 if there are any.

    A permission rule that matches no tool of the agent in the folder of the file is a warning.
    """
    from perdure._config.error import BadConfig

    try:
        look = read_config_for_review(path)
        look.check_variables()
        look.check_model_engine_and_store(path)
    except BadConfig as error:
        from perdure._config.error import format_location

        if as_json:
            errors = [{"line": fault.line, "message": fault.message} for fault in error.faults]
            print_json({"path": path, "valid": False, "errors": errors, "notes": []})
        for fault in () if as_json else error.faults:
            report_error(to_one_line(f"{format_location(error.path, fault.line)}: {fault.message}"))
        context.exit(error.exit_code)
    unmatched = _find_unmatched_rules(path)
    if as_json:
        print_json({"path": path, "valid": True, "errors": [], "notes": [*look.notes(path), *unmatched]})
        return
    screen = TerminalOutput()
    for note in look.notes(path):
        screen.note(note)
    for text in unmatched:
        warn(text)
    screen.write(f"{to_one_line(path)} is valid\n")


def _find_unmatched_rules(path: str) -> list[str]:
    """Return a warning for each rule of a `perdure.toml` that matches no tool of the agent in its folder."""
    if path.lower().endswith(".json"):
        return []
    from perdure._cli.run.assembly import find_unmatched_rules  # at first use: for a quick start
    from perdure._config.load import load_config

    return find_unmatched_rules(path, load_config(path, trusted=True))
