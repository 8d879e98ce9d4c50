"""The scoring systems, as one table of rules: the machines needed, the value of a frame, the score of an utterance."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import InputError
from pipeline.machines.branches import (
    EMBEDDING,
    GMM,
    NORMALISED_GMM,
    NORMALISED_SUPERVECTOR,
    PITCH,
    SUPERVECTOR,
    UtteranceKind,
)
from pipeline.machines.margins import Margins
from pipeline.posteriors.coupling import (
    boao,
    boar,
    poao,
    poar,
    refined_worst_rival,
    rpoao,
    worst_rival,
)
from pipeline.posteriors.sigmoid import AnyFloat, FixedSigmoid

Finish = Callable[[AnyFloat, NDArray[np.int64]], AnyFloat]


def _keep(mean: AnyFloat, _claims: NDArray[np.int64]) -> AnyFloat:
    return mean


@dataclass(frozen=True)
class Rule:
    """A scoring system: the utterance score is ``finish(mean over frames of frame(margins))``.

    ``frame`` returns (T, C) or (T, C, N) for C claims; ``finish`` returns the scores (C,). ``needs`` are the machine
    kinds that it reads; ``every_claim`` rules read the pair margins of all N speakers, at O(N^2). ``alone`` is the unit
    of the one-class score that replaces it while one speaker is enrolled. ``binary`` rules count frames. ``unit`` is
    the score's meaning, for axes and reports. ``top`` is the largest score of rules with bounded scores, from 0 to
    ``top``, else None. Rules with a ``kind`` score whole utterances: ``finish`` takes all speakers' scores (N,) by
    machines of that kind. A rule with ``parts`` is the calibrated sum of other rules' scores: of those whose machines
    it ``needs``, and of the others where their machines exist (``parts_among``).
    """

    name: str
    needs: frozenset[str]
    frame: Callable[[Margins, FixedSigmoid], AnyFloat]
    unit: str
    alone: Literal["mean", "log"]
    finish: Finish = _keep
    every_claim: bool = False
    binary: bool = False
    top: float | None = None
    kind: UtteranceKind | None = None
    parts: tuple[str, ...] = ()

    @property
    def alone_key(self) -> str:
        """Return the name under which held-out trials keep the score that replaces this one."""
        return f"alone.{self.alone}"

    def parts_among(self, systems: Container[str]) -> tuple[str, ...]:
        """Return the parts of which the sum consists where scores of ``systems`` are available."""
        return tuple(name for name in self.parts if name in systems or RULES[name].needs <= self.needs)


def smallest_over_rivals(mean: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
    """Return the smallest of ``mean`` (C, N) over the rivals of each claim: (C,)."""
    others = mean.copy()
    others[np.arange(len(claims)), claims] = np.inf
    return np.asarray(np.minimum.reduce(others, axis=-1))


def own_margin(margins: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
    """Return f_i (C,) of each claimed speaker, from all speakers' (N,)."""
    return np.asarray(margins[claims])


def own_less_best_rival(margins: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
    """Return f_i less the largest f_j of another speaker, (C,), from all speakers' (N,)."""
    others = np.empty((len(claims), len(margins)), dtype=margins.dtype)
    others[:] = margins
    others[np.arange(len(claims)), claims] = -np.inf
    return np.asarray(margins[claims] - np.maximum.reduce(others, axis=1))


def own_less_others(margins: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
    """Return f_i less the mean f_j of the others that are not -inf, (C,), from all speakers' (N,)."""
    there = np.isfinite(margins)
    count = np.count_nonzero(there)
    total = np.add.reduce(margins if count == len(margins) else margins[there])
    own = margins[claims]
    return np.asarray(own - (total - own) / max(1, count - 1))


def _no_frames(_margins: Margins, _sigmoid: FixedSigmoid) -> AnyFloat:
    raise AssertionError("a rule over whole utterances has no value for single frames")


_PAIR = frozenset({"one_vs_one"})
_REFINED = frozenset({"one_vs_one", "one_class"})
_REST = frozenset({"one_vs_rest"})
_SHARE = "share of frames won"
_LOG = "mean log posterior (nats)"


def _by(kind: UtteranceKind, ending: str, unit: str, finish: Finish) -> Rule:
    """Return a rule over whole utterances by one kind of machines."""
    return Rule(f"{kind.name}{ending}", frozenset({kind.name}), _no_frames, unit, "mean", finish, kind=kind)


def _utterance_rules(supervector: UtteranceKind, gmm: UtteranceKind, adjective: str) -> list[Rule]:
    """Return the rules over whole utterances by the machines of a branch."""
    return [
        # After Campbell, Sturim and Reynolds 2006.
        _by(supervector, "", f"margin of the speaker's {adjective}supervector machine", own_margin),
        _by(supervector, "_rival", f"{adjective}supervector margin less the best rival's", own_less_best_rival),
        # Reynolds, Quatieri and Dunn 2000; means adapted after Shinoda and Lee 2001.
        _by(gmm, "", f"{adjective}mean log-likelihood ratio to the others (nats)", own_less_others),
        _by(gmm, "_rival", f"{adjective}mean log-likelihood ratio to the best rival (nats)", own_less_best_rival),
    ]


class _Rules(dict[str, Rule]):
    """Rules by the name of their system; an unknown name raises InputError."""

    def __missing__(self, name: object) -> Rule:
        raise InputError(f"scoring system {name!r:.80} is unknown; there are {', '.join(self)}")


RULES = _Rules(
    (rule.name, rule)
    for rule in (
        # Xin, Wu and Pan 2002, eqs. 12 to 18 (``posteriors.coupling``).
        Rule("boar", _REST, boar, "share of frames accepted", "mean", binary=True, top=1.0),
        Rule("poar", _REST, poar, _LOG, "log"),
        Rule("boao", _PAIR, boao, _SHARE, "mean", every_claim=True, binary=True, top=1.0),
        Rule("poao", _PAIR, poao, _LOG, "log"),
        Rule("rpoao", _REFINED, rpoao, _LOG, "log"),
        # This project's: the smallest mean over j of r_ij, and of r'_ij (eq. 16).
        Rule("worst_rival", _PAIR, worst_rival, "mean posterior against the worst rival", "mean",
             smallest_over_rivals, top=1.0),
        Rule("refined_worst_rival", _REFINED, refined_worst_rival, "refined mean posterior, worst rival", "mean",
             smallest_over_rivals, top=2.0),
        *_utterance_rules(SUPERVECTOR, GMM, ""),
        *_utterance_rules(NORMALISED_SUPERVECTOR, NORMALISED_GMM, "normalised "),
        # Weights adapted after Reynolds, Quatieri and Dunn 2000.
        _by(PITCH, "_rival", "log-likelihood ratio of pitches to the best rival", own_less_best_rival),
        _by(EMBEDDING, "", "margin of the speaker's embedding machine", own_margin),
        _by(EMBEDDING, "_rival", "embedding margin less the best rival's", own_less_best_rival),
        # Logistic fusion (Brummer and du Preez 2006).
        Rule("fused", frozenset({"supervector"}), _no_frames, "log-likelihood ratio (nats)", "mean",
             parts=("supervector_rival", "gmm_rival", "worst_rival", "normalised_supervector_rival",
                    "normalised_supervector", "normalised_gmm_rival", "pitch_rival", "embedding_rival", "embedding")),
    )
)  # fmt: skip


def systems_of(kinds: Iterable[str], *, every_pair: bool = True) -> tuple[str, ...]:
    """Return the scoring systems that need only machines of ``kinds``, in the table's order.

    Rules that need the machines of all pairs of speakers are left out unless there are machines for ``every_pair``.
    """
    trained = frozenset(kinds)
    return tuple(name for name, rule in RULES.items() if rule.needs <= trained and (every_pair or not rule.every_claim))
