"""The coupling rules against the papers' equations, written out term by term in fifty-digit decimal arithmetic.

The transcription keeps the full sums over all pairs in the denominators of Xin, Wu and Pan 2002, eqs. 13 and 16, so
that the package's shorter ones are checked and not assumed.
"""

from __future__ import annotations

import decimal
from decimal import Decimal
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline.config import System
from pipeline.machines.margins import Margins
from pipeline.posteriors.sigmoid import (
    FixedSigmoid,
    log_probability,
    log_sum_probability,
    probability,
)
from pipeline.scoring.rules import RULES

# Exponents far beyond those of a float: exp(-1e6) is 1e-434295.
PRECISE = decimal.Context(prec=50, Emin=-999_999_999, Emax=999_999_999)
SPEAKERS = (2, 3, 5, 8)
LOG_RULES = ("poar", "poao", "rpoao")
# The others judge segments, which have no margins a frame.
FRAME_RULES = tuple(name for name, rule in RULES.items() if not (rule.kind or rule.parts))
SEEDS = st.integers(0, 2**32 - 1)
SCALES = st.sampled_from((1e-3, 0.3, 1.0, 5.0, 40.0, 300.0))


# The equations, literally.


def s(z: float) -> Decimal:
    """Eq. 10."""
    with decimal.localcontext(PRECISE):
        return 1 / (1 + (-Decimal(float(z))).exp())


def poar(f: np.ndarray) -> list[Decimal]:
    """Eq. 12 from one-vs-rest margins (N,)."""
    with decimal.localcontext(PRECISE):
        p = [s(margin) for margin in f]
        return [one / sum(p) for one in p]


def poao(f: np.ndarray) -> list[Decimal]:
    """Eq. 13 from pair margins (N, N), the denominator summed over all ordered pairs."""
    return coupled([[s(margin) for margin in row] for row in f])


def refined(f: np.ndarray, g: np.ndarray) -> list[list[Decimal]]:
    """Eqs. 14 to 16: r'_ij from pair margins (N, N) and one-class margins (N,)."""
    with decimal.localcontext(PRECISE):
        q = [s(margin) for margin in g]
        return [[s(f[i, j]) * (q[i] + q[j]) for j in range(len(g))] for i in range(len(g))]


def coupled(r: list[list[Decimal]]) -> list[Decimal]:
    """Eq. 13 with r for the binary posteriors."""
    people = range(len(r))
    with decimal.localcontext(PRECISE):
        numerators = [sum(r[i][j] for j in people if j != i) for i in people]
        return [numerator / sum(numerators) for numerator in numerators]


def votes(f: np.ndarray) -> list[int]:
    """Speakers with the most pairwise votes, a margin of zero giving half a vote to each."""
    won = [sum(np.sign(f[i, j]) for j in range(len(f)) if j != i) for i in range(len(f))]
    return [i for i in range(len(f)) if won[i] == max(won)]


def worst_rivals(f: np.ndarray, g: np.ndarray | None) -> list[float]:
    """Least over the other speakers of the mean over the frames of r_ij, or of r'_ij given one-class margins."""
    people = range(f.shape[1])
    with decimal.localcontext(PRECISE):
        r = [[[s(z) for z in row] for row in f[t]] if g is None else refined(f[t], g[t]) for t in range(len(f))]
        return [float(min(sum(one[i][j] for one in r) / len(f) for j in people if j != i)) for i in people]


def log(value: Decimal) -> float:
    with decimal.localcontext(PRECISE):
        return float(value.ln())


# Random margins.


def random_margins(seed: int, speakers: int, *, frames: int = 3, scale: float = 1.0) -> Margins:
    """Margins of every claim; pair margins antisymmetric, as those of pair machines are."""
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.standard_normal((frames, speakers, speakers)) * scale, 1)
    return Margins(
        slots=np.arange(speakers),
        pair=upper - upper.transpose(0, 2, 1),
        one_class=generator.standard_normal((frames, speakers)) * scale,
        one_vs_rest=generator.standard_normal((frames, speakers)) * scale,
    )


def cast(margins: Margins, dtype: str) -> Margins:
    kinds = (margins.pair, margins.one_class, margins.one_vs_rest)
    return Margins(margins.slots, *(kind.astype(dtype) for kind in kinds))


def per_frame(name: str, margins: Margins, posterior: FixedSigmoid | None = None) -> np.ndarray:
    return RULES[name].frame(margins, FixedSigmoid() if posterior is None else posterior)


def score(name: str, margins: Margins, posterior: FixedSigmoid | None = None) -> np.ndarray:
    """Utterance scores (C,): the rule's own means over frames, finished."""
    rule = RULES[name]
    return rule.finish(per_frame(name, margins, posterior).mean(axis=0), margins.slots)


def expected_logs(name: str, margins: Margins, slope: float = 1.0) -> np.ndarray:
    """Log posteriors (T, N) by the equations."""
    rows = []
    for t in range(len(margins.pair)):
        f, g, h = slope * margins.pair[t], slope * margins.one_class[t], slope * margins.one_vs_rest[t]
        values = {"poar": poar(h), "poao": poao(f), "rpoao": coupled(refined(f, g))}[name]
        rows.append([log(value) for value in values])
    return np.array(rows)


# The five systems.


@pytest.mark.parametrize("speakers", SPEAKERS)
@pytest.mark.parametrize("name", LOG_RULES)
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS, scale=SCALES, slope=st.sampled_from((1.0, 0.2, 3.0)))
@example(seed=0, scale=1e3, slope=1.0)
@example(seed=0, scale=1e6, slope=1.0)
def test_log_posterior_is_the_papers_equation_with_its_full_sums(name, speakers, seed, scale, slope):
    margins = random_margins(seed, speakers, scale=scale)
    result = per_frame(name, margins, FixedSigmoid(slope))
    np.testing.assert_allclose(result, expected_logs(name, margins, slope), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", LOG_RULES)
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, speakers=st.sampled_from(SPEAKERS))
def test_score_is_the_log_of_the_geometric_mean_of_eq_17(name, seed, speakers):
    margins = random_margins(seed, speakers, frames=7)
    posteriors = np.exp(expected_logs(name, margins))
    normalised = posteriors / posteriors.sum(axis=1, keepdims=True)  # eq. 17 divides by the sum over speakers
    np.testing.assert_allclose(np.exp(score(name, margins)), np.prod(normalised, axis=0) ** (1 / 7), rtol=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, speakers=st.sampled_from(SPEAKERS), scale=st.sampled_from((0.1, 1.0, 5.0)), zeros=st.booleans())
def test_boao_names_the_winner_of_the_votes_and_between_equals_that_of_eq_13(seed, speakers, scale, zeros):
    margins = random_margins(seed, speakers, frames=6, scale=scale)
    margins.pair[np.abs(margins.pair) < zeros * 0.5 * scale] = 0.0
    result = per_frame("boao", margins)
    for t, row in enumerate(result):
        support = poao(margins.pair[t])
        most = max(support[i] for i in votes(margins.pair[t]))
        # Margins of zero may leave equals even then, and rounding choose among them.
        winners = {i for i in votes(margins.pair[t]) if support[i] >= most * (1 - Decimal("1e-12"))}
        assert row.any()
        assert set(np.flatnonzero(row)) <= winners


def cycle(strengths: tuple[float, float, float]) -> Margins:
    """Three speakers who each beat the next by the strength given."""
    first, second, third = strengths
    pair = np.array([[0.0, first, -third], [-first, 0.0, second], [third, -second, 0.0]])
    return Margins(slots=np.arange(3), pair=pair[None])


def test_boao_ties_by_hand():
    # Speaker 1 wins by 3 and loses by 1; the others win by less than that or lose by more.
    np.testing.assert_array_equal(per_frame("boao", cycle((1.0, 3.0, 2.0)))[0], [0, 1, 0])
    for margins in (cycle((1.0, 1.0, 1.0)), cycle((0.0, 0.0, 0.0))):
        assert len(set(per_frame("boao", margins)[0])) == 1


def test_boao_margin_of_zero_is_half_a_vote_to_each():
    # 0 ties with 1 and beats 2; 1 beats 2: one and a half votes each, and 0's support is larger.
    pair = np.array([[0.0, 0.0, 2.0], [0.0, 0.0, 1.0], [-2.0, -1.0, 0.0]])
    np.testing.assert_array_equal(per_frame("boao", Margins(np.arange(3), pair[None]))[0], [1, 0, 0])
    # Without the half, 0 would have one vote and be level with 1.
    pair = np.array([[0.0, 1e-9, 0.0], [-1e-9, 0.0, 50.0], [0.0, -50.0, 0.0]])
    np.testing.assert_array_equal(per_frame("boao", Margins(np.arange(3), pair[None]))[0], [1, 0, 0])


# The worst-rival rules.


@pytest.mark.parametrize("speakers", SPEAKERS)
@pytest.mark.parametrize("name", ["worst_rival", "refined_worst_rival"])
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, scale=SCALES)
@example(seed=0, scale=1e3)
@example(seed=0, scale=1e6)
def test_worst_rival_is_the_least_mean_over_the_rivals(name, speakers, seed, scale):
    margins = random_margins(seed, speakers, frames=4, scale=scale)
    g = margins.one_class if name == "refined_worst_rival" else None
    np.testing.assert_allclose(score(name, margins), worst_rivals(margins.pair, g), rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", FRAME_RULES)
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, speakers=st.sampled_from(SPEAKERS), scale=st.sampled_from((0.0, 1e-300, 1e3, 1e6, 1e30)))
def test_every_rule_is_finite_on_margins_of_any_size(name, dtype, seed, speakers, scale):
    margins = random_margins(seed, speakers, scale=scale)
    result = score(name, cast(margins, dtype))
    assert result.shape == (speakers,)
    assert np.isfinite(result).all()
    assert (result <= (1e-6 if RULES[name].alone == "log" else 2.0)).all()


# Small populations.


@pytest.mark.parametrize("name", LOG_RULES)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, scale=SCALES)
def test_with_two_speakers_every_posterior_is_that_of_the_pair_machine(name, seed, scale):
    made = random_margins(seed, 2, frames=9, scale=scale)
    both = np.stack((made.pair[:, 0, 1], made.pair[:, 1, 0]), axis=1)
    margins = Margins(made.slots, made.pair, made.one_class, one_vs_rest=both)
    expected = [[log(s(f)), log(s(-f))] for f in margins.pair[:, 0, 1]]
    np.testing.assert_allclose(per_frame(name, margins), expected, rtol=1e-10, atol=1e-13)


def test_settings_list_every_rule_in_the_tables_order():
    assert get_args(System) == tuple(RULES)


def test_a_sum_is_made_of_the_parts_that_it_needs_and_of_others_where_there_are_machines_for_them():
    fused = RULES["fused"]
    needed = ("supervector_rival",)
    assert fused.parts_among(RULES) == fused.parts
    assert fused.parts_among({"poao"}) == fused.parts_among(()) == needed
    assert fused.parts_among({"gmm_rival", "worst_rival"}) == (*needed, "gmm_rival", "worst_rival")
    assert RULES["poao"].parts_among(RULES) == ()


@pytest.mark.parametrize("name", FRAME_RULES)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_rule_reads_only_the_machines_that_it_says_it_needs(name, seed):
    margins = random_margins(seed, 4)
    kinds = {"one_vs_one": "pair", "one_class": "one_class", "one_vs_rest": "one_vs_rest"}
    needed = {field: getattr(margins, field) for kind, field in kinds.items() if kind in RULES[name].needs}
    np.testing.assert_array_equal(score(name, Margins(margins.slots, **needed)), score(name, margins))


@pytest.mark.parametrize("name", FRAME_RULES)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, order=st.permutations(range(5)))
def test_permuting_the_speakers_permutes_the_scores(name, seed, order):
    margins, order = random_margins(seed, 5), list(order)
    shuffled = Margins(
        margins.slots,
        margins.pair[:, order][:, :, order],
        margins.one_class[:, order],
        margins.one_vs_rest[:, order],
    )
    np.testing.assert_allclose(score(name, shuffled), score(name, margins)[order], rtol=1e-11)


# Log-odds.


@settings(deadline=None)
@given(st.floats(-1e6, 1e6))
@example(0.0)
@example(-745.2)
@example(710.0)
def test_probability_and_its_log_are_those_of_fifty_digits(log_odds):
    result = float(probability(np.array([log_odds]))[0])
    assert result == pytest.approx(float(s(log_odds)), rel=1e-13, abs=1e-300)
    assert float(log_probability(np.array([log_odds]))[0]) == pytest.approx(log(s(log_odds)), rel=1e-13)


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float64, (2, 4), elements=st.floats(-30, 30) | st.floats(-1e6, 1e6) | st.floats(-80, -60)),
    arrays(np.float64, 4, elements=st.floats(-800, 5)) | st.none(),
)
def test_log_of_a_sum_of_probabilities_is_that_of_fifty_digits(log_odds, log_weight):
    result = log_sum_probability(log_odds, log_weight)
    for row, value in zip(log_odds, result, strict=True):
        with decimal.localcontext(PRECISE):
            weights = [Decimal(1)] * 4 if log_weight is None else [Decimal(float(w)).exp() for w in log_weight]
            total = sum(s(z) * w for z, w in zip(row, weights, strict=True))
        assert value == pytest.approx(log(total), rel=1e-12, abs=1e-12)
