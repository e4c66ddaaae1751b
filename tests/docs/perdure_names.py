"""Whether a name of ours that a page mentions is really there.

A page writes a public name (`Agent`, `TextDelta`), a member of one (`Session.fork`), a parameter (`Agent(stop=…)`), a
full path (`perdure.stores.namespaced`), something of Python's own (`asyncio.timeout`), or a command
(`perdure sessions fork --at`).
"""

import ast
import builtins
import functools
import importlib
import inspect
import itertools
import sys
import textwrap
import types
from typing import Any, get_args, get_origin

import click

import perdure
from perdure._cli.main import root_command
from perdure._runtime.agent import agent
from perdure._runtime.session import session
from scripts.exports import list_public_modules


class Missing(Exception):
    """A name that is not there; it says which part of it."""


def problem_of(written: str) -> str:
    """What is wrong with a name; nothing when it is there."""
    try:
        if written.startswith("perdure "):
            look_up_command(written.split()[1:])
        else:
            look_up(ast.parse(written.replace("…", "...").lstrip("@"), mode="eval").body)
    except SyntaxError:
        return f"{written}: is not written as a name"
    except Missing as missing:
        return f"{written}: {missing}"
    return ""


def look_up_command(words: list[str]) -> None:
    """Follow a command line; whatever is not a command or an option is an argument of the command, or of the option."""
    command: click.Command = root_command
    for before, word in itertools.pairwise(["", *words]):
        if word.startswith("-"):
            options = {option for parameter in command.params for option in parameter.opts}
            if word not in options:
                raise Missing(f"there is no option {word!r}")
        elif isinstance(command, click.Group):
            found = command.get_command(click.Context(command), word)
            if found is None:
                raise Missing(f"there is no command {word!r}")
            command = found
        elif not before.startswith("-") and not any(isinstance(each, click.Argument) for each in command.params):
            raise Missing(f"{command.name!r} takes no argument {word!r}")


def look_up(node: ast.expr) -> Any:
    """What an expression of names stands for; `None` when that cannot be told without running it."""
    match node:
        case ast.Name(id=name):
            return name_of_ours(name)
        case ast.Attribute(value=value, attr=attribute):
            return member(look_up(value), attribute)
        case ast.Call(func=function, keywords=keywords):
            called = look_up(function)
            for keyword in keywords:
                if keyword.arg and keyword.arg not in parameters(called):
                    raise Missing(f"{ast.unparse(function)} takes no {keyword.arg!r}")
            return called if isinstance(called, type) else None
    raise Missing("is neither a name, a member nor a call")


def name_of_ours(name: str) -> Any:
    """A public name, something built in, or a module of Python."""
    for place in (*map(importlib.import_module, list_public_modules()), builtins):
        if hasattr(place, name):
            return getattr(place, name)
    if name == "perdure" or name in sys.stdlib_module_names:
        return importlib.import_module(name)
    raise Missing(f"{name!r} is no public name, and needs its full path if it is one of a module")


def member(owner: Any, name: str) -> Any:
    """A part of a module, or an attribute of a class, also one that only its objects have."""
    if name.startswith("_"):
        raise Missing(f"{name!r} is nobody's business")
    if owner is None:
        raise Missing(f"what {name!r} would belong to is not known")
    if hasattr(owner, name):
        return getattr(owner, name)
    if isinstance(owner, types.ModuleType):
        try:
            return importlib.import_module(f"{owner.__name__}.{name}")
        except ModuleNotFoundError:
            raise Missing(f"{owner.__name__} has no {name!r}") from None
    if isinstance(owner, type) and name in attributes(owner):
        return None
    raise Missing(f"{getattr(owner, '__name__', owner)} has no {name!r}")


@functools.cache
def attributes(owner: type) -> set[str]:
    """The fields of a class, and what its methods give to `self`."""
    found = {name for each in owner.__mro__ for name in inspect.get_annotations(each)}
    ours = [each for each in owner.__mro__ if each.__module__.startswith("perdure")]
    for node in [node for each in ours for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(each))))]:
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
    return found


def _resolved(annotation: Any) -> Any:
    """An annotation that was written for type checkers alone, as an object."""
    return eval(annotation, {**vars(agent), **vars(session)}) if isinstance(annotation, str) else annotation


def parameters(called: Any) -> set[str]:
    """What can be given to a callable by name."""
    if isinstance(called, perdure.Tool):
        called = called.function
    if fields := getattr(called, "__struct_fields__", ()):
        return set(fields)
    if called is None or not callable(called):
        raise Missing("cannot be called")
    found: set[str] = set()
    for name, parameter in inspect.signature(called).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            unpacked = [get_origin(each) or each for each in get_args(_resolved(parameter.annotation))]
            found.update(*(inspect.get_annotations(each) for each in unpacked if isinstance(each, type)))
        else:
            found.add(name)
    return found
