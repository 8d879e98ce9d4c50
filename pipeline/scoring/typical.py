"""Ratios that are typical of a claimant: what a claim must reach, whatever the impostors in the store are like.

Held-out nontarget trials are by speakers of the store. While these are few, or recorded elsewhere, other people come
closer to a claimant than they do, and the threshold of Bayes' rule is too low. A claim must therefore reach what nearly
all of the claimant's own held-out utterances exceed.

The n_c ratios r of a claimant's target trials are modelled as normal around the claimant's own mean (a random-effects
model; Gelman et al., Bayesian Data Analysis, 3rd edition, section 5.4): r = m_c + e with m_c ~ N(m, b), e ~ N(0, w).
The posterior of m_c has the variance v_c and the mean v_c (m / b + n_c mean(r) / w), with 1 / v_c = 1 / b + n_c / w; a
further trial has that mean and the variance w + v_c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# A claim must reach the claimant's expected ratio less DEVIATIONS standard deviations, and less one more for every
# SPEAKERS_A_DEVIATION other speakers, whose trials show better what impostors are like, all divided by N^POWER.
DEVIATIONS, SPEAKERS_A_DEVIATION, POWER = 0.65, 2.5, 0.15

# Fewest differences from claimants' means that suffice to estimate the variance within claimants.
LEAST_DIFFERENCES = 5


@dataclass(frozen=True)
class Typicality:
    """Shifts that bring every claimant's lowest typical ratio down to ``threshold``, with N ``speakers``.

    That ratio is (m - (0.65 + (N - 1) / 2.5) s) / N^0.15, with the expected ratio m and its standard deviation s. The
    more speakers are enrolled, the smaller the share of m that claims on another day reach; impostors' reach even less.
    """

    threshold: float
    speakers: int

    def shifts(self, ratios: Array, claims: NDArray[np.uint64]) -> dict[int, float]:
        """Return what to subtract from the ratios of each claimant, by id; those with nothing to subtract are left out.

        Parameters
        ----------
        ratios, claims
            Ratios (n,) of target trials, in nats, and ids (n,) of their claimants.
        """
        above = {
            claim: self.least(mean, spread) - self.threshold
            for claim, (mean, spread) in expected(ratios, claims).items()
        }
        return {claim: shift for claim, shift in above.items() if shift > 0.0}

    def least(self, mean: float, spread: float) -> float:
        """Return the lowest ratio typical of a claimant, from a further trial's ``mean`` and standard deviation."""
        users = max(self.speakers, 1)  # a store may hold background speakers alone
        return float((mean - (DEVIATIONS + (users - 1) / SPEAKERS_A_DEVIATION) * spread) / users**POWER)


def expected(ratios: Array, claims: NDArray[np.uint64]) -> Mapping[int, tuple[float, float]]:
    """Return, by claimant, the mean and standard deviation that the model expects of another target trial's ratio."""
    if len(ratios) < 2:
        return {}
    ids = np.array(list(dict.fromkeys(claims.tolist())), dtype=np.uint64)  # unsorted: ids are random
    order = np.argsort(ids)
    places = order[np.searchsorted(ids, claims, sorter=order)]
    counts = np.bincount(places)
    means = np.bincount(places, ratios) / counts
    differences = len(ratios) - len(ids)
    squares = float(np.sum((ratios - means[places]) ** 2))
    within = squares / differences if differences >= LEAST_DIFFERENCES else float(ratios.var(ddof=1))
    centre, between = float(means.mean()), np.inf
    if len(ids) > 1:
        between = max(float(means.var(ddof=1)) - within * float(np.mean(1.0 / counts)), 1e-3)
    variances = 1.0 / (1.0 / between + counts / max(within, 1e-9))
    shrunk = variances * (centre / between + means * counts / max(within, 1e-9))
    spreads = np.sqrt(within + variances)
    return {int(one): (float(mean), float(spread)) for one, mean, spread in zip(ids, shrunk, spreads, strict=True)}
