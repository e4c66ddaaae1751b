"""Say which of the names on stdin (a JSON object) are not in the installed packages; run by the Python that has them.

    echo '{"roots": ["pydantic_ai"], "names": ["Agent.run(deps=…)"]}' | \
        .venv-bench/pydantic-ai/bin/python tests/docs/rival_names.py

A name is looked up in the roots, or by its full path. The standard library alone is used: the environments
of the benchmarks have neither perdure nor pytest.
"""

import ast
import dataclasses
import importlib
import inspect
import json
import sys
from typing import Any


def look_up(node: ast.expr, roots: list[str]) -> Any:
    """What an expression of names stands for; raise `LookupError` when it is not there."""
    match node:
        case ast.Name(id=name):
            return find_name(name, roots)
        case ast.Attribute(value=value, attr=attribute):
            return find_member(look_up(value, roots), attribute)
        case ast.Call(func=function, keywords=keywords):
            called = look_up(function, roots)
            for keyword in keywords:
                if keyword.arg not in parameters(called):
                    raise LookupError(f"{ast.unparse(function)} takes no {keyword.arg!r}")
            return called
    raise LookupError("is not written as a name")


def find_name(name: str, roots: list[str]) -> Any:
    for root in roots:
        if hasattr(importlib.import_module(root), name):
            return getattr(importlib.import_module(root), name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise LookupError(f"there is no {name!r} in {', '.join(roots)}") from None


def find_member(owner: Any, name: str) -> Any:
    if hasattr(owner, name):
        return getattr(owner, name)
    if inspect.ismodule(owner):
        try:
            return importlib.import_module(f"{owner.__name__}.{name}")
        except ModuleNotFoundError:
            raise LookupError(f"{owner.__name__} has no {name!r}") from None
    fields = {field.name for field in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set()
    fields |= {each for base in getattr(owner, "__mro__", ()) for each in vars(base).get("__annotations__", {})}
    if name not in fields:
        raise LookupError(f"{getattr(owner, '__name__', owner)} has no {name!r}")
    return None


def parameters(called: Any) -> set[str]:
    """What can be given to a callable, or be a key of a typed dictionary."""
    if "__total__" in vars(called):
        return set(called.__annotations__)
    return set(inspect.signature(called).parameters)


def problem_of(name: str, roots: list[str]) -> str:
    """What is wrong with a name; nothing when it is there."""
    try:
        look_up(ast.parse(name.replace("…", "...").lstrip("@"), mode="eval").body, roots)
    except (LookupError, SyntaxError, ValueError) as error:
        return f"{name}: {error}"
    return ""


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    problems = [problem_of(name, asked["roots"]) for name in asked["names"]]
    json.dump([problem for problem in problems if problem], sys.stdout)
