"""Examples of each command, which `--help` shows below the options."""

from collections.abc import Mapping
from typing import Final

import click

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "": (
        "perdure                         chat with an agent in this folder",
        "perdure --continue              go on with the last session of this project",
        'perdure run "Explain @app.py"   answer one prompt',
        'git diff | perdure run "Write a commit message"',
    ),
    "chat": (
        "perdure",
        "perdure --continue",
        "perdure --session plan --model anthropic:claude-sonnet-5-5",
        "perdure --coding --allow 'bash(git *)' --limit-cost 2",
    ),
    "run": (
        'perdure run "Which of the berths in @berths.csv are free?"',
        'cat app.py | perdure run "Explain this."',
        'perdure run --continue "And which are the longest?"',
        'perdure run --coding --yolo --limit-cost 1 "Fix the failing test."',
        'perdure run --schema answer.json --quiet "How many berths are free?"',
        'perdure run --engine planner "Compare the three harbours."',
        'perdure run --trace trace.html "Why is it slow?"',
    ),
    "resume": ("perdure resume --last", "perdure resume 0197d2c4 --unpark"),
    "goal": (
        'perdure goal start "All tests pass" --coding --yolo --grade-command "pytest -q"',
        "perdure goal resume",
        "perdure goal show goal-9f2c41aa",
    ),
    "goal start": (
        'perdure goal start "The README explains every option" --coding --yes',
        'perdure goal start "All tests pass" --worktree --yolo --grade-command "pytest -q"',
        'perdure goal start "The report is written" --budget-cost 2 --budget-seconds 3600',
    ),
    "goal resume": ("perdure goal resume", "perdure goal resume goal-9f2c --budget-tokens 2000000 --yolo"),
    "goal list": ("perdure goal list", "perdure goal list --json"),
    "goal show": ("perdure goal show goal-9f2c41aa", "perdure goal show goal-9f2c --svg scores.svg"),
    "goal stop": ("perdure goal stop goal-9f2c41aa",),
    "attend": ("perdure attend", "perdure attend --once --prefix nightly- --json"),
    "replay": ("perdure replay --last", "perdure replay 0197d2c4 --from 12 --model anthropic"),
    "trace": (
        "perdure trace --last",
        "perdure trace 0197d2c4 --html trace.html",
        "perdure trace 0197d2c4 --compare 0197d311 --html both.html",
        "perdure trace run.jsonl --curl",
    ),
    "sessions": ("perdure sessions list", "perdure sessions show plan"),
    "sessions list": ("perdure sessions list", "perdure sessions list --all --json"),
    "sessions rename": ("perdure sessions rename 0197d2c4 'Free berths'",),
    "sessions rm": ("perdure sessions rm 0197d2c4 --yes",),
    "sessions show": ("perdure sessions show --last", "perdure sessions show plan --json"),
    "sessions fork": ("perdure sessions fork plan", "perdure sessions fork plan plan-b --at 12"),
    "sessions tree": ("perdure sessions tree", "perdure sessions tree plan"),
    "sessions export": ("perdure sessions export plan -o plan.json",),
    "sessions import": ("perdure sessions import plan.json --as plan-copy",),
    "sessions du": ("perdure sessions du", "perdure sessions du --limit 3 --json"),
    "sessions prune": (
        "perdure sessions prune --older-than 90d --dry-run",
        "perdure sessions prune --keep 100 --max-bytes 1GB --yes",
    ),
    "files": ("perdure files changes --last --diff", "perdure files undo --last"),
    "files changes": ("perdure files changes --last --diff",),
    "files undo": ("perdure files undo --last --dry-run", "perdure files undo plan"),
    "files redo": ("perdure files redo plan",),
    "search": ("perdure search free berths", "perdure search --role tool --since 7d timeout"),
    "doctor": ("perdure doctor", "perdure doctor --json"),
    "questions": ("perdure questions --last", "perdure questions plan --json"),
    "answer": ("perdure answer plan yes", "perdure answer plan --reject 'not today'"),
    "inbox": ("perdure inbox plan",),
    "resolve": ("perdure resolve plan 0197d2c4 'It was delivered.'",),
    "steer": ("perdure steer plan 'Use the northern berths only.'",),
    "cancel": ("perdure cancel --last", "perdure cancel plan --mode after_turn"),
    "permissions": (
        "perdure permissions list",
        """perdure permissions explain write_text '{"path": "a.txt", "text": "x"}'""",
        "perdure permissions revoke grant_0123456789abcdef",
    ),
    "permissions list": ("perdure permissions list", "perdure permissions list --session plan --json"),
    "permissions explain": (
        """perdure permissions explain write_text '{"path": "a.txt", "text": "x"}'""",
        """perdure permissions explain read_text '{"path": "a.txt"}' --session plan""",
    ),
    "permissions revoke": ("perdure permissions revoke grant_0123456789abcdef",),
    "schedule": (
        "perdure schedule add news --cron '0 9 * * 1-5' --timezone Europe/Berlin --prompt 'Sum up the news.'",
        "perdure schedule serve",
        "perdure schedule run-now news",
        "perdure schedule history news",
    ),
    "schedule list": ("perdure schedule list", "perdure schedule list --json"),
    "schedule add": (
        "perdure schedule add news --every 1h --prompt 'Sum up the news.'",
        "perdure schedule add report --cron '0 9 * * mon-fri' --timezone Europe/Berlin --skill report",
        "perdure schedule add mail --prompt 'Answer this mail.'",
    ),
    "schedule remove": ("perdure schedule remove news",),
    "schedule cancel": ("perdure schedule cancel news", "perdure schedule cancel news --json"),
    "schedule history": ("perdure schedule history", "perdure schedule history news --limit 5 --json"),
    "schedule run-now": (
        "perdure schedule run-now news",
        """perdure schedule run-now mail "$(cat mail.txt)" --no-wait""",
    ),
    "schedule serve": (
        "perdure schedule serve",
        "perdure schedule serve --once --json",
        "perdure schedule serve --allow 'bash(git *)'",
    ),
    "models": ("perdure models", "perdure models anthropic --json"),
    "probe": ("perdure probe http://127.0.0.1:8080/v1 qwen3 --deep",),
    "skills": ("perdure skills list", "perdure skills trust release-notes"),
    "skills list": ("perdure skills list",),
    "skills show": ("perdure skills show release-notes",),
    "skills trust": ("perdure skills trust release-notes",),
    "skills revoke": ("perdure skills revoke release-notes",),
    "mcp": (
        "perdure mcp add time -- uvx mcp-server-time",
        "perdure mcp add docs --url https://mcp.example.org/mcp",
        "perdure mcp tools time",
        """perdure mcp call time get_current_time '{"timezone": "UTC"}'""",
    ),
    "mcp list": ("perdure mcp list",),
    "mcp add": (
        "perdure mcp add files -- npx -y @modelcontextprotocol/server-filesystem .",
        "perdure mcp add docs --url https://mcp.example.org/mcp --header 'Authorization=Bearer ${DOCS_TOKEN}'",
    ),
    "mcp remove": ("perdure mcp remove time",),
    "mcp tools": ("perdure mcp tools time",),
    "mcp call": ("""perdure mcp call time get_current_time '{"timezone": "UTC"}'""",),
    "mcp login": ("perdure mcp login docs",),
    "mcp logout": ("perdure mcp logout docs",),
    "mcp approve": ("perdure mcp approve time", "perdure mcp approve time get_current_time --yes"),
    "mcp serve": (
        "perdure mcp serve                              for the configuration of a client",
        "perdure mcp serve --http --tokens tokens.txt   for clients of this machine",
    ),
    "memory": (
        "perdure memory list",
        "perdure memory search coffee --user ann",
        'perdure memory add "Ann drinks her coffee black." --user ann --tag coffee',
        "perdure memory export --user ann --output ann.jsonl",
    ),
    "memory list": ("perdure memory list --tag coffee", "perdure memory list --user ann --pinned --json"),
    "memory search": (
        "perdure memory search what coffee does ann drink",
        "perdure memory search deploy --project shop --json",
    ),
    "memory add": (
        'perdure memory add "We deploy on Fridays only after noon." --project shop --tag deploy',
        'perdure memory add "Answer in French." --user ann --pin',
    ),
    "memory forget": ("perdure memory forget mem_0123456789abcdef --user ann",),
    "memory pin": ("perdure memory pin mem_0123456789abcdef",),
    "memory unpin": ("perdure memory unpin mem_0123456789abcdef",),
    "memory export": ("perdure memory export --user ann --output ann.jsonl",),
    "memory import": ("perdure memory import ann.jsonl --user ann --trusted",),
    "config": ("perdure config check", "perdure config show"),
    "config schema": ("perdure config schema > perdure.schema.json",),
    "config check": ("perdure config check", "perdure config check other.toml --json"),
    "config show": ("perdure config show .mcp.json",),
    "trust": ("perdure trust", "perdure trust --list", "perdure trust --revoke ../old", "perdure trust perdure.toml"),
    "review": (
        "perdure review",
        "perdure review develop --fail-on major",
        "perdure review -m anthropic -m openai -m gemini --json",
    ),
    "eval": (
        "perdure eval cases.toml            with the agent of this folder",
        "perdure eval cases.toml --agent shop.agents:support -m anthropic -m openai",
        "perdure eval cases.jsonl --grader contains --repeat 3 --html report.html",
        "perdure eval cases.toml --resume   after an interruption",
        "perdure eval cases.toml --tag refunds --baseline none --json > report.json",
        """perdure eval cases.toml --grader '{name = "model", criteria = "It is polite."}' --grader-model openai""",
    ),
    "init": ("perdure init", "perdure init new-project"),
    "completion": ("perdure completion install",),
    "completion show": ("perdure completion show zsh",),
    "completion install": ("perdure completion install", "perdure completion install fish"),
    "backup": ("perdure backup sessions-backup.db",),
    "restore": ("perdure restore sessions-backup.db --store sqlite:restored.db",),
}
"""Examples by the words of the command; a text behind three blanks explains the line."""


def add_examples(program: click.Group) -> None:
    """Add usage examples to the end of the help of each command in the click group `program`."""
    for words, lines in EXAMPLES.items():
        command: click.Command = program
        for word in words.split():
            assert isinstance(command, click.Group)  # noqa: S101 - a test walks all commands
            command = command.commands[word]
        command.epilog = "\n".join(["\b", "Examples:", *[f"  {line}" for line in lines]])
