"""Binary margins of many machines to one number a frame and claim: the coupling rules, as functions in one table.

Notation of Xin, Wu and Pan 2002: f_i one-vs-rest margin, f_ij pair margin, N speakers; p_i, r_ij and q_i are the binary
posteriors of the one-vs-rest, pair and one-class margins, s(margin) in the paper and here whatever a ``Posterior``
makes of it. Because r_ij + r_ji = 1, the denominators of eqs. 13 and 16 need no pair machine but the claim's own:
eq. 13's is N (N - 1) / 2, and eq. 16's is (N - 1) * sum_k q_k.

With one speaker in the population there are no rivals, and each rule falls back on the one-class machine alone: the
mean over frames of q_i or of its log (``Rule.alone``).

Claims judged in panels (``machines.panels``) bring one-class margins with an axis (C,) for the claims: what each sees
of its own panel, in which the claim's number is its place.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.machines.population import Margins
from pipeline.posteriors.classics import hastie_tibshirani, log_posterior, pkpd, wu_lin_weng
from pipeline.posteriors.sigmoid import log_probability, log_sum_probability, probability

AnyFloat = NDArray[Any]


class Posterior(Protocol):
    """Maps from the margins of machines, known by their kind and their speakers, to log-odds.

    Maps of all N speakers are meant wherever an axis is N long. What comes back may be what was given: callers must
    not change it in place.
    """

    def pair(self, margins: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
        """Log-odds of r_ij (T, C, N) at pair margins of ``claims`` (C,) against everybody.

        The map of j against i is the mirror image of that of i against j, -g(-f), so that r_ij + r_ji = 1: eqs. 13 and
        16 are cheap for no other. Where j is i the value means nothing.
        """

    def one_class(self, margins: AnyFloat) -> AnyFloat:
        """Log-odds of q (T, N) at the one-class margins of all speakers."""

    def one_vs_rest(self, margins: AnyFloat) -> AnyFloat:
        """Log-odds of p (T, N) at the one-vs-rest margins of all speakers."""


def _keep(mean: AnyFloat, _claims: NDArray[np.int64]) -> AnyFloat:
    return mean


@dataclass(frozen=True)
class Rule:
    """How frames become an utterance score: ``finish(mean over frames of frame(margins))``.

    ``frame`` gives (T, C) or (T, C, N) for C claims; ``finish`` gives the scores (C,). ``needs`` are the margin kinds
    that ``frame`` reads; ``every_claim`` says that it wants the pair margins of all N speakers, not of one claim, and
    so costs O(N^2). ``binary`` rules count frames. ``unit`` is what a score means, for axes and reports.
    ``top`` is the highest score of rules whose scores lie between 0 and that, None for scores without such bounds.
    Rules with ``whole`` judge a stretch of speech at once: ``finish`` takes what the machines of the one kind they need
    say of it, (N,) for all speakers.
    A rule with ``parts`` is the calibrated sum of other rules' scores: of those whose machines it ``needs``, and of the
    others where there are machines for them (``parts_among``).
    ``comparison`` rules are slow and there to be compared with: they run only where they are asked for by name.
    """

    name: str
    needs: frozenset[str]
    frame: Callable[[Margins, Posterior], AnyFloat]
    unit: str
    source: str
    alone: Literal["mean", "log"]
    finish: Callable[[AnyFloat, NDArray[np.int64]], AnyFloat] = _keep
    every_claim: bool = False
    binary: bool = False
    comparison: bool = False
    top: float | None = None
    whole: bool = False
    parts: tuple[str, ...] = ()

    def parts_among(self, systems: Container[str]) -> tuple[str, ...]:
        """The parts that a sum is made of where scores of ``systems`` can be had."""
        return tuple(name for name in self.parts if name in systems or RULES[name].needs <= self.needs)


def _required(margins: AnyFloat | None) -> AnyFloat:
    if margins is None:
        raise AssertionError("a rule was given margins without a kind that it needs")
    return margins


def _pair_log_odds(margins: Margins, posterior: Posterior) -> AnyFloat:
    """Log-odds of r_ij (T, C, N), -inf where j is i: no speaker is a rival of their own."""
    log_odds = posterior.pair(_required(margins.pair), margins.claims).copy()
    log_odds[:, np.arange(len(margins.claims)), margins.claims] = -np.inf
    return log_odds


def boar(margins: Margins, _posterior: Posterior) -> AnyFloat:
    """1 where the claim's one-vs-rest margin is positive, else 0: the margin itself, whatever the posteriors are."""
    return np.asarray(_required(margins.one_vs_rest)[:, margins.claims] > 0, dtype=float)


def poar(margins: Margins, posterior: Posterior) -> AnyFloat:
    """Log of eq. 12: log p_i - log sum_j p_j."""
    log_odds = posterior.one_vs_rest(_required(margins.one_vs_rest))
    return np.asarray(log_probability(log_odds[:, margins.claims]) - log_sum_probability(log_odds)[:, None])


def boao(margins: Margins, posterior: Posterior) -> AnyFloat:
    """1 for the winner of the pairwise votes, else 0: (T, N), wants every claim.

    Votes are the signs of the margins themselves, whatever the posteriors are: what is binary in the paper is the
    machine. A margin of exactly 0 is half a vote to each. Speakers tied on votes are told apart by the larger sum of
    pairwise posteriors (eq. 13): the papers do not say, and unlike "the first one" this does not depend on the order.
    """
    pair = _required(margins.pair)
    votes = (pair > 0).sum(axis=-1) + 0.5 * ((pair == 0).sum(axis=-1) - 1)
    best = votes == votes.max(axis=-1, keepdims=True)
    tied = np.flatnonzero(best.sum(axis=-1) > 1)
    if tied.size:
        support = probability(posterior.pair(pair[tied], margins.claims)).sum(axis=-1)
        support[~best[tied]] = -np.inf
        best[tied] = support == support.max(axis=-1, keepdims=True)
    return np.asarray(best, dtype=float)


def poao(margins: Margins, posterior: Posterior) -> AnyFloat:
    """Log of eq. 13: log sum_j r_ij - log(N (N - 1) / 2)."""
    log_odds = _pair_log_odds(margins, posterior)
    speakers = log_odds.shape[-1]
    return np.asarray(log_sum_probability(log_odds) - np.log(speakers * (speakers - 1) / 2))


def rpoao(margins: Margins, posterior: Posterior) -> AnyFloat:
    """Log of eqs. 13-16: log sum_j r_ij (q_i + q_j) - log((N - 1) sum_k q_k)."""
    log_odds = _pair_log_odds(margins, posterior)
    one_class = posterior.one_class(_required(margins.one_class))
    numerator = log_sum_probability(log_odds, _log_either(one_class, margins.claims))
    denominator = log_sum_probability(_by_claim(one_class)) + np.log(log_odds.shape[-1] - 1)
    return np.asarray(numerator - denominator)


def worst_rival(margins: Margins, posterior: Posterior) -> AnyFloat:
    """r_ij (T, C, N), to be averaged over frames before the smallest over rivals is taken."""
    return probability(_pair_log_odds(margins, posterior))


def refined_worst_rival(margins: Margins, posterior: Posterior) -> AnyFloat:
    """r'_ij = r_ij (q_i + q_j) (T, C, N), eq. 16 before the sum over rivals."""
    q = probability(posterior.one_class(_required(margins.one_class)))
    return np.asarray(worst_rival(margins, posterior) * (_own(q, margins.claims)[:, :, None] + _by_claim(q)))


def smallest_over_rivals(mean: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
    """Smallest of ``mean`` (C, N) over the rivals of each claim: (C,)."""
    rivals = mean.copy()
    rivals[np.arange(len(claims)), claims] = np.inf
    return np.asarray(np.minimum.reduce(rivals, axis=-1))


def own_margin(margins: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
    """Of each claim (C,) what is said of all speakers (N,): segment margins f_i, or scores of their models."""
    return np.asarray(margins[claims])


def own_less_best_rival(margins: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
    """f_i less the largest f_j of another speaker: (C,), from what is said of all speakers (N,)."""
    rivals = np.empty((len(claims), len(margins)), dtype=margins.dtype)
    rivals[:] = margins
    rivals[np.arange(len(claims)), claims] = -np.inf
    return np.asarray(margins[claims] - np.maximum.reduce(rivals, axis=1))


def own_less_others(margins: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
    """f_i less the mean f_j of the others, who are not -inf: (C,), from what is said of all speakers (N,)."""
    there = np.isfinite(margins)
    count = np.count_nonzero(there)
    total = np.add.reduce(margins if count == len(margins) else margins[there])
    present = there[claims]
    own = np.where(present, margins[claims], total / max(1, count))
    return np.asarray(own - (total - own) / np.maximum(1, count - present))


def _no_frames(_margins: Margins, _posterior: Posterior) -> AnyFloat:
    raise AssertionError("a rule over whole stretches was asked about frames")


def _classic(couple: Callable[[AnyFloat], AnyFloat]) -> Callable[[Margins, Posterior], AnyFloat]:
    """The frame function of a classic coupling of r (T, N, N): log p (T, N), at least ``log_posterior``'s floor."""

    def frame(margins: Margins, posterior: Posterior) -> AnyFloat:
        # In single precision r_ij and r_ji would not sum to 1 closely enough.
        pair = np.asarray(_required(margins.pair), dtype=np.float64)
        return log_posterior(couple(probability(posterior.pair(pair, margins.claims))))

    return frame


def _log_either(one_class: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
    """log(q_i + q_j) (T, C, N), eq. 15."""
    log_q = log_probability(one_class)
    return np.asarray(np.logaddexp(_own(log_q, claims)[:, :, None], _by_claim(log_q)))


def _own(values: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
    """The claims' own (T, C) of ``values`` (T, N), or (T, C, P) by panel."""
    return np.asarray(values[:, claims] if values.ndim == 2 else values[:, np.arange(len(claims)), claims])


def _by_claim(values: AnyFloat) -> AnyFloat:
    """``values`` with an axis for the claims: (T, 1, N), or (T, C, P) as they are."""
    return values[:, None, :] if values.ndim == 2 else values


def alone(unit: Literal["mean", "log"], margins: Margins, posterior: Posterior) -> AnyFloat:
    """The one-class machines on their own (T, C): what is left of a rule when there are no rivals."""
    log_odds = _own(posterior.one_class(_required(margins.one_class)), margins.claims)
    return log_probability(log_odds) if unit == "log" else probability(log_odds)


_PAIR = frozenset({"one_vs_one"})
_REFINED = frozenset({"one_vs_one", "one_class"})
_REST = frozenset({"one_vs_rest"})
_SEGMENT = frozenset({"segment"})
_MIXTURE = frozenset({"mixture"})
_SHARE = "share of frames won"
_LOG = "mean log posterior (nats)"
_XIN = "Xin, Wu and Pan 2002"
_HASTIE = "Hastie and Tibshirani 1998, minimum of the KL divergence"
_PKPD = "Price, Knerr, Personnaz and Dreyfus 1995, normalised"
_WU = "Wu, Lin and Weng 2004, second approach"

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("boar", _REST, boar, "share of frames accepted", f"{_XIN}, eq. 18", "mean", binary=True, top=1.0),
        Rule("poar", _REST, poar, _LOG, f"{_XIN}, eqs. 12 and 17", "log"),
        Rule("boao", _PAIR, boao, _SHARE, f"{_XIN}, eq. 18", "mean", every_claim=True, binary=True, top=1.0),
        Rule("poao", _PAIR, poao, _LOG, f"{_XIN}, eqs. 13 and 17", "log"),
        Rule("rpoao", _REFINED, rpoao, _LOG, f"{_XIN}, eqs. 14-17", "log"),
        Rule("worst_rival", _PAIR, worst_rival, "mean posterior against the worst rival",
             "this project: min over j of the mean of r_ij", "mean", smallest_over_rivals, top=1.0),
        Rule("refined_worst_rival", _REFINED, refined_worst_rival, "refined mean posterior, worst rival",
             "this project: min over j of the mean of r'_ij (eq. 16)", "mean", smallest_over_rivals, top=2.0),
        Rule("segment", _SEGMENT, _no_frames, "margin of the speaker's segment machine",
             "this project, after Campbell, Sturim and Reynolds 2006", "mean", own_margin, whole=True),
        Rule("segment_rival", _SEGMENT, _no_frames, "segment margin less the best rival's",
             "this project: f_i - max over j of f_j", "mean", own_less_best_rival, whole=True),
        Rule("mixture", _MIXTURE, _no_frames, "mean log-likelihood ratio to the others (nats)",
             "Reynolds, Quatieri and Dunn 2000; means adapted after Shinoda and Lee 2001", "mean", own_less_others,
             whole=True),
        Rule("mixture_rival", _MIXTURE, _no_frames, "mean log-likelihood ratio to the best rival (nats)",
             "this project: the claim's mixture score less the largest of another speaker", "mean", own_less_best_rival,
             whole=True),
        Rule("fused", _SEGMENT | _PAIR, _no_frames, "log-likelihood ratio (nats)",
             "this project: logistic fusion (Brummer and du Preez 2006)", "mean",
             parts=("segment_rival", "segment", "worst_rival", "mixture_rival", "mixture")),
        Rule("hastie_tibshirani", _PAIR, _classic(hastie_tibshirani), _LOG, _HASTIE, "log",
             every_claim=True, comparison=True),
        Rule("pkpd", _PAIR, _classic(pkpd), _LOG, _PKPD, "log", every_claim=True, comparison=True),
        Rule("wu_lin_weng", _PAIR, _classic(wu_lin_weng), _LOG, _WU, "log", every_claim=True, comparison=True),
    )
}  # fmt: skip


def systems_of(kinds: Iterable[str], asked: Iterable[str] = (), rivals: int | str = "all") -> tuple[str, ...]:
    """Scoring systems that machines of ``kinds`` are enough for, in the table's order.

    Comparison rules are among them only if they are among the names ``asked``. Where ``rivals`` is not "all", pair
    machines are there against some rivals only, and rules that want every pair are not among them.
    """
    trained, named = frozenset(kinds), frozenset(asked)
    return tuple(
        name
        for name, rule in RULES.items()
        if rule.needs <= trained
        and (name in named or not rule.comparison)
        and (rivals == "all" or not rule.every_claim)
    )
