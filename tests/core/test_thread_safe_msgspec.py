"""Conversions to types: on several threads at once too, where msgspec alone would crash the process."""

import subprocess
import sys

import msgspec
import pytest

from perdure._core.values.jsonable import convert, prepare_type

PROGRAM = """
import sys, threading
import msgspec
from perdure._core.values.jsonable import convert

sys.setswitchinterval(1e-6)
for number in range(150):
    Part = msgspec.defstruct("Part", [("x", int), ("y", str | None, None)])
    fields = [("a", int), ("b", list[Part]), ("c", dict[str, Part]), ("d", Part | None, None)]
    Whole = msgspec.defstruct("Whole", fields)
    data = {"a": 1, "b": [{"x": 1, "y": "z"}], "c": {"k": {"x": 2}}, "d": {"x": 3}}
    begin, found = threading.Barrier(4), []

    def work():
        begin.wait(60)
        found.append(convert(data, Whole))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert found == [Whole(1, [Part(1, "z")], {"k": Part(2)}, Part(3))] * 4, found
print("done")
"""


class Point(msgspec.Struct):
    x: int


class Other(msgspec.Struct):
    x: int


def test_several_threads_may_be_the_first_to_convert_to_a_type():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]


def test_values_are_converted_as_msgspec_does():
    assert convert({"x": 1}, Point) == Point(1)
    assert convert(["5"], list[int], strict=False) == [5]
    for _ in range(2):  # the first time, and when the type is known
        with pytest.raises(msgspec.ValidationError, match="`str`, got `int`"):
            convert({"x": 1}, dict[str, str])


def test_a_type_to_which_msgspec_converts_nothing_is_left_to_its_first_use():
    prepare_type(Point | Other)
    prepare_type(Point)
