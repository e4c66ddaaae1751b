"""Takes the picture of an evaluation's report in docs/images, with Chromium.

    python -m scripts.eval_picture

It is the report of the quiz in examples/evals, evaluated three times: before a tool was added, with it, and after a
change that made an agent worse.
"""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from perdure.evals import Evaluation, EvaluationReport, build_report_page, load_dataset
from perdure.stores import open_store

ROOT = Path(__file__).resolve().parent.parent
QUIZ = ROOT / "examples" / "evals"


async def evaluate_quiz() -> EvaluationReport:
    """Evaluate the quiz three times, and return the last report."""
    sys.path.append(str(QUIZ))
    import quiz_agents  # type: ignore[import-not-found,unused-ignore] # pyright: ignore[reportMissingImports]

    dataset, store = load_dataset(QUIZ / "quiz.toml"), open_store("memory:")
    careful = quiz_agents.careful
    reports: list[EvaluationReport] = []
    for missing in ("convert", "", "ticket_price"):
        tools = [each for each in careful.tools if each.name != missing]
        agents = [careful.replace(tools=tools), quiz_agents.hasty]
        reports.append(await Evaluation(dataset, agents, store=store).run())
    return reports[-1]


def main() -> None:
    """Open the page and take its picture."""
    from playwright.sync_api import sync_playwright

    text = build_report_page(asyncio.run(evaluate_quiz()))
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        path = Path(folder) / "report.html"
        path.write_text(text, encoding="utf-8")
        page = browser.new_page(viewport={"width": 1280, "height": 960}, locale="en-GB")
        page.goto(path.as_uri())
        page.screenshot(path=ROOT / "docs" / "images" / "eval-report.png")
        browser.close()


if __name__ == "__main__":
    main()
