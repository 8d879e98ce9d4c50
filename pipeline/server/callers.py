"""Callers, who send requests, and their fair shares of resources and of turns."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from pipeline.errors import ServiceError


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, with the ``scopes`` of its token.

    Requests are counted by ``key``, which is the token, or the address where there are no tokens; and by ``address``,
    which is None if it says nothing about the sender, like that of a proxy on this machine.
    """

    key: str
    address: str | None
    scopes: frozenset[str]

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys by which the caller is counted, each once."""
        return (self.key,) if self.address is None else tuple(dict.fromkeys((self.key, f"address {self.address}")))


class Shares:
    """An amount of ``what`` that all callers have together: at most ``most``, and ``share`` by one token or address."""

    def __init__(self, what: str, most: int, share: int) -> None:
        self.what, self.most, self.share = what, most, share
        self._used: Counter[str] = Counter()
        self._total = 0

    @contextmanager
    def of(self, caller: Caller) -> Iterator[Taken]:
        """Yield the share of ``caller``, from which the block may take."""
        share = Taken(self, caller)
        try:
            yield share
        finally:
            self._add(caller, -share.amount)

    def _add(self, caller: Caller, amount: int) -> None:
        self._total += amount
        for key in caller.keys:
            self._used[key] += amount
            if not self._used[key]:
                del self._used[key]

    def take(self, caller: Caller, amount: int) -> None:
        """Take more for ``caller``; raises ServiceError (503) beyond what all, or one, may have."""
        if self._total + amount > self.most:
            raise ServiceError(503, f"all callers have at most {self.most:,} {self.what} at once; try again later")
        if max(self._used[key] for key in caller.keys) + amount > self.share:
            raise ServiceError(503, f"one caller has at most {self.share:,} {self.what} at once; end some first")
        self._add(caller, amount)


@dataclass(slots=True)
class Taken:
    """The resources that one request has taken."""

    shares: Shares
    caller: Caller
    amount: int = 0

    def take(self, amount: int) -> None:
        """Take ``amount`` more; raises ServiceError."""
        self.shares.take(self.caller, amount)
        self.amount += amount


class Patience:
    """Seconds to wait for a caller: ``most`` at first, and never more; data that arrives gives some back."""

    def __init__(self, most: float) -> None:
        self._most = self._left = most

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Limit waiting in the block to the patience that is left; raises TimeoutError."""
        began = time.monotonic()
        async with asyncio.timeout(self._left):
            yield
        self._left -= time.monotonic() - began

    def gain(self, seconds: float) -> None:
        """Give back so many seconds."""
        self._left = min(self._most, self._left + seconds)


class Turns:
    """``places`` to work, given to one caller after the other, however much each of them asks for.

    At most ``waiting`` requests of a caller wait, and eight times as many of all.
    """

    def __init__(self, what: str, places: int, *, waiting: int) -> None:
        self._what, self._free, self._most, self._each = what, places, waiting, places
        self._held: Counter[str] = Counter()
        self._held_seconds = 0.0  # of the last place that was given up
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def keep_one(self) -> None:
        """Always leave one place to other callers, if there are several: call this before any place is given."""
        self._each = max(1, self._free - 1)

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return sum(map(len, self._waiting.values()))

    def check(self, caller: Caller) -> None:
        """Raise ServiceError (503) if no more requests of ``caller`` may wait."""
        mine, everybody = len(self._waiting.get(caller.key, ())), self.waiting
        if mine >= self._most or everybody >= 8 * self._most:
            detail = f"{everybody} {self._what} wait already, {mine} of this caller; try again later"
            raise ServiceError(503, detail, retry_seconds=max(5.0, self._held_seconds))

    @asynccontextmanager
    async def place(self, caller: Caller) -> AsyncIterator[None]:
        """Wait for a place, and hold it until the end of the block; raises ServiceError where too many wait."""
        if self._free and self._may_hold(caller.key):
            self._free -= 1
            self._held[caller.key] += 1
        else:
            await self._wait(caller)
        began = time.monotonic()
        try:
            yield
        finally:
            self._held_seconds = time.monotonic() - began
            self._pass_on(caller.key)

    def _may_hold(self, key: str) -> bool:
        return self._held[key] < self._each

    async def _wait(self, caller: Caller) -> None:
        self.check(caller)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller.key, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._pass_on(caller.key)
            elif turn in self._waiting.get(caller.key, ()):
                self._waiting[caller.key].remove(turn)
                if not self._waiting[caller.key]:
                    del self._waiting[caller.key]
            raise

    def _pass_on(self, held_by: str) -> None:
        """Give a place to the caller who has waited longest for a turn and may hold one more, or leave it free."""
        self._held -= Counter((held_by,))  # without zeros
        while (key := next(filter(self._may_hold, self._waiting), None)) is not None:
            queue = self._waiting.pop(key)
            turn = queue.popleft()
            if queue:
                self._waiting[key] = queue  # behind the others
            if not turn.cancelled():  # else its caller is leaving at this moment
                turn.set_result(None)
                self._held[key] += 1
                return
        self._free += 1
