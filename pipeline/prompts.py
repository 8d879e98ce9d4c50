"""Random digit phrases to be read aloud: three two-digit numbers each, the shape of YOHO's.

Numbers from 21 to 99 without those that end in zero: each is two words.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

TENS = range(2, 10)
ONES = range(1, 10)
_NUMBERS = 3


def phrases(source: random.Random | None = None) -> Iterator[str]:
    """Phrases such as "36 45 81" without end.

    All 72 numbers come once before one comes again, in an order drawn from ``source`` (None: the system's randomness).
    """
    source = random.SystemRandom() if source is None else source
    waiting: list[int] = []
    while True:
        if len(waiting) < _NUMBERS:
            deck = [10 * tens + ones for tens in TENS for ones in ONES]
            source.shuffle(deck)
            waiting += deck
        yield " ".join(str(number) for number in waiting[:_NUMBERS])
        del waiting[:_NUMBERS]
