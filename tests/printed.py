"""Output of a program compared with a page or notebook: numbers may differ in their last digits."""

from __future__ import annotations

import re

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?![\w.]*\w)")
ROOM = 0.05


def as_printed(expected: str, printed: str) -> bool:
    """Check that ``printed`` is ``expected`` up to white space and ``...``, with numbers within 5 percent or 0.05."""
    words = re.split(r"(\.\.\.|\s+)", expected.strip())
    pattern = ""
    for word in words:
        if word == "...":
            pattern += r".*?"
        elif word.isspace():
            pattern += r"\s+"
        else:
            escaped = re.escape(word).replace(r"\.", ".").replace(r"\-", "-")
            pattern += NUMBER.sub("\0", re.sub(r"\\\+(?=\d)", "+", escaped))
    numbers = [float(number) for word in words if word != "..." for number in NUMBER.findall(word)]
    match = re.fullmatch(pattern.replace("\0", r"([-+]?\d+(?:\.\d+)?)"), printed.strip(), re.S)
    return match is not None and all(
        abs(float(there) - here) <= max(ROOM, ROOM * abs(here))
        for there, here in zip(match.groups(), numbers, strict=True)
    )
