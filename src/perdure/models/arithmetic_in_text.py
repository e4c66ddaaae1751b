"""Find arithmetic in a sentence: `17 * 23`, `3 plus 4`, `15 % of 80`, `the square root of 144`."""

import re
from collections.abc import Sequence

_OPERAND = r"[0-9]+(?:[.,][0-9]+)*"
_SPOKEN: Sequence[tuple[str, str]] = (
    (rf"({_OPERAND})\s*(?:%|percent|per cent)\s+of\s+({_OPERAND})", r"\1 / 100 * \2"),
    (rf"\b(?:square\s+root|sqrt)\s+of\s+({_OPERAND})", r"sqrt(\1)"),
    (rf"({_OPERAND})\s+squared\b", r"\1 ** 2"),
    (rf"({_OPERAND})\s+cubed\b", r"\1 ** 3"),
    (r"\bto\s+the\s+power\s+of\b", "**"),
    (r"\b(?:multiplied\s+by|times)\b", "*"),
    (r"\bdivided\s+by\b", "/"),
    (r"\bplus\b", "+"),
    (r"\bminus\b", "-"),
    (r"(?<=[0-9])\s*[x×·]\s*(?=[0-9])", " * "),  # noqa: RUF001 - people type them
    (r"÷", "/"),
    (r"−", "-"),  # noqa: RUF001 - as above
    (r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", ""),
)
_FORMULA = re.compile(r"(?<![\w.,:/-])-?(?:sqrt)?[0-9(](?:[0-9\s+\-*/^().%]|sqrt)*[0-9)](?![\w:/-])")
_OPERATOR = re.compile(r"sqrt|[0-9)]\s*[+*^%]|[0-9)]\s+[-/]\s+[0-9(]|[-/]\s*\(|\)\s*[-/]")
"""What shows that digits are meant to be calculated. A dash or slash between them may be a date, a range or a ratio."""
_CALCULATION = re.compile(r"\b(?:calculat|comput|evaluat)\w*|=\s*\??\s*$", re.IGNORECASE)
_AROUND = re.compile(r"(?:what(?:'s|\u2019s|\s+is)|how\s+much\s+is|was\s+ist|combien\s+font)?[\s?=.!]*", re.IGNORECASE)
_DATE = re.compile(r"[0-9]+([-/])[0-9]+\1[0-9]+")


def find_arithmetic(sentence: str) -> list[str]:
    """Return the arithmetic expressions in a sentence, in symbols, but no dates, ranges or versions."""
    for spoken, symbols in _SPOKEN:
        sentence = re.sub(spoken, symbols, sentence, flags=re.IGNORECASE)
    found = [match[0].strip() for match in _FORMULA.finditer(sentence)]
    clear = _CALCULATION.search(sentence) is not None
    return [formula for formula in found if _is_formula(formula, sentence, clear=clear)]


def _is_formula(formula: str, sentence: str, *, clear: bool) -> bool:
    """Return True if the digits in a sentence are meant as arithmetic; with `clear`, the sentence asks to calculate."""
    if _OPERATOR.search(formula):
        return True
    if not re.search(r"[0-9)]\s*[-/]", formula) or _DATE.fullmatch(formula):
        return False
    return clear or _AROUND.fullmatch(sentence.replace(formula, "", 1)) is not None
