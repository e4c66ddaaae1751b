"""Keys that a provider repeats in its error, made unreadable. Above: `said.py`. Below: nothing."""

import re

_NAMED = re.compile(
    r"\b(sk|pk|rk|ak|gsk|xai|hf|nvapi|csk|tgp|fw|r8|esk|pplx|key|ghp|gho|ghu|github_pat|glpat|dapi|AIza|ya29\.|AKIA|ASIA)"
    r"([-_]|(?<=AIza)|(?<=ya29\.)|(?<=AKIA)|(?<=ASIA))[A-Za-z0-9_*.\-]{6,500}"
)
"""Keys that begin with the name of who gave them out."""
_TOLD = re.compile(
    r"\b(api[ _-]?key(?: provided| is)?(?:\s?[:=]\s?['\"`]?|\s?['\"`])|(?:bearer|token|secret)\s?[:= ]\s?['\"`]?)"
    r"([^\s'\"`,;]{8,500})",
    re.IGNORECASE,
)
"""What is said to be a key, if it looks like one."""
_BARE = re.compile(
    r"\b(?=[A-Za-z0-9]{0,199}[0-9])(?=[A-Za-z0-9]{0,199}[A-Za-z])[A-Za-z0-9]{32,500}\b|\beyJ[\w.\-]{20,2000}"
)
"""What looks like a key by its length alone."""


def masked(text: str) -> str:
    """The text with every key in it cut down to what names its kind."""
    text = _NAMED.sub(r"\1\2***", text)
    text = _TOLD.sub(lambda found: f"{found[1]}***" if _looks_secret(found[1], found[2]) else found[0], text)
    return _BARE.sub("***", text)


def _looks_secret(name: str, value: str) -> bool:
    """Words are no keys: `unexpected token: identifier`."""
    return re.search(r"[0-9*_-]" if name.lower().startswith("api") else r"[0-9*]", value) is not None
