"""`schema_grader`: a grader that passes if the answer is JSON that fits a type or a JSON Schema."""

from typing import Any

from perdure._core.model.json_reply import list_json_values
from perdure._core.schema.problems import Invalid
from perdure._core.values import checks
from perdure._core.values.jsonable import to_text
from perdure._runtime.agent.output import to_output

from .grader import Evidence, FunctionGrader, Grade, Grader


def schema_grader(type_: Any, *, name: str = "schema") -> Grader:
    """Make a grader that passes if the answer, or the typed output, is a value of a type, or fits a JSON Schema.

    JSON in a code fence, or with text around it, is found. Raises `ConfigError` if it is no type and no valid schema.
    """
    output = to_output(type_)
    if output is None:
        checks.raise_config_error("schema_grader", "type_", type_, "give a type or a JSON Schema")

    def grade(evidence: Evidence) -> Grade:
        text = evidence.answer if evidence.output is None else to_text(evidence.output)
        found = list_json_values(text)
        if not found:
            return Grade(passed=False, feedback="the answer is not JSON", grader=name)
        data = {"value": found[0]} if output.record.boxed and not _is_boxed(found[0]) else found[0]
        try:
            output.convert_answer(data)
        except Invalid as error:
            return Grade(passed=False, feedback=f"the answer does not fit {output.spec.name}: {error}", grader=name)
        return Grade(passed=True, grader=name)

    return FunctionGrader(grade, name)


def _is_boxed(value: Any) -> bool:
    return isinstance(value, dict) and [*value] == ["value"]
