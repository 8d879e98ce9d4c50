"""Supervector machines without a speaker, held-out segments or pseudo-speakers' machines against training again."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from supervector_data import COUNTS, SEEDS, centred_targets, normalised, training_data, weights_of

from pipeline.machines.gram import Known, packed, unpacked
from pipeline.machines.supervector_training import SupervectorTraining
from pipeline.machines.supervectors import unit


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, counts=COUNTS.filter(lambda counts: len(counts) > 2), has_pseudo=st.booleans(), data=st.data())
def test_margins_without_a_speaker_are_those_of_training_again_on_the_others(seed, counts, has_pseudo, data):
    """Weighted ridge regression on the rows of the others alone; centring and targets are those of everybody."""
    vectors = training_data(seed, counts)
    made = [[part[:4] + 1.0] for part in vectors] if has_pseudo else []
    absent = data.draw(st.integers(0, len(counts) - 1))
    new = np.random.default_rng(seed).normal(0.0, 2.0, (5, 12))
    mean, rows, voices = normalised([*vectors, *(part for parts in made for part in parts)])
    kept = (voices % len(counts)) != absent
    targets = centred_targets(voices, int(voices.max()) + 1)[kept][:, : len(counts)]
    theirs = Ridge(alpha=2.0, fit_intercept=False).fit(rows[kept], targets, sample_weight=weights_of(voices)[kept])
    training = SupervectorTraining(vectors, ridge=2.0, pseudo_speakers=made)
    before, margins = training.solution.margins(new), training.without(absent).margins(new)
    others = np.arange(len(counts)) != absent
    np.testing.assert_allclose(margins[:, others], theirs.predict(unit(new - mean))[:, others], atol=2e-5)
    np.testing.assert_array_equal(training.solution.margins(new), before)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, counts=COUNTS.filter(lambda counts: len(counts) > 2 and min(counts) > 1), data=st.data())
def test_machines_without_held_out_segments_are_those_of_training_again_on_the_rest(seed, counts, data):
    vectors = training_data(seed, counts)
    held = [data.draw(st.integers(0, count - 1)) for count in counts]
    absent = data.draw(st.integers(0, len(counts) - 1))
    new = np.random.default_rng(seed).normal(0.0, 2.0, (len(counts) + 2, 12))
    mean, rows, owners = normalised(vectors)
    kept = np.concatenate([np.arange(size) < size - count for size, count in zip(counts, held, strict=True)])
    # Of speakers who are not to be left out nothing need be counted.
    counted = [(count,) if count or n in (0, absent) else () for n, count in enumerate(held)]
    training = SupervectorTraining(vectors, ridge=2.0, held_out=counted)
    np.testing.assert_array_equal(training.without_held_out.dual[~kept], 0.0)
    for rest, made in ((kept, training.without_held_out), (kept & (owners != absent), training.without(absent))):
        theirs = Ridge(alpha=2.0, fit_intercept=False)
        targets = centred_targets(owners, len(counts))[rest]
        theirs.fit(rows[rest], targets, sample_weight=weights_of(owners)[rest])
        others = np.arange(len(counts)) != (absent if rest is not kept else -1)
        for some in (new[:1], new):  # by kernel values, and by coefficients
            expected = theirs.predict(unit(some - mean))[:, others]
            np.testing.assert_allclose(made.margins(some)[:, others], expected, atol=2e-5)
    parts = new[:2], new[2:], np.tile(new, (2, 1))  # the last by coefficients
    together = training.held_out_margins([absent, 0, absent], parts)
    for speaker, some, margins in zip((absent, 0, absent), parts, together, strict=True):
        for made, solution in zip(margins, (training.without_held_out, training.without(speaker)), strict=True):
            np.testing.assert_allclose(made, solution.margins(some), atol=2e-5)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, counts=COUNTS, data=st.data())
def test_inner_products_that_are_known_are_not_needed_again(seed, counts, data):
    vectors = training_data(seed, counts)
    whole = SupervectorTraining(vectors, ridge=1.0)
    inner = unpacked(whole.triangle)
    np.testing.assert_array_equal(packed(inner), whole.triangle)
    np.testing.assert_array_equal(inner, inner.T)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, sum(counts) - 1)))), dtype=int)
    some = np.full_like(inner, np.nan)
    some[np.ix_(rows, rows)] = inner[np.ix_(rows, rows)]
    again = SupervectorTraining(vectors, ridge=1.0, known=Known(rows, some.copy()))
    np.testing.assert_allclose(unpacked(again.triangle), inner, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(again.solution.coef, whole.solution.coef, atol=1e-5)
    if len(rows):  # they are believed
        other = SupervectorTraining(vectors, ridge=1.0, known=Known(rows, 2.0 * some))
        assert np.abs(other.triangle - whole.triangle).max() > 0.1


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, counts=COUNTS.filter(lambda counts: len(counts) > 2))
def test_pseudo_speakers_are_speakers_without_a_machine(seed, counts):
    vectors = training_data(seed, counts)
    made = [[part[:4] + 1.0, part[:2] - 1.0] for part in vectors]
    new = np.random.default_rng(seed).normal(0.0, 2.0, (5, 12))
    among = SupervectorTraining([*vectors, *(part for parts in made for part in parts)], ridge=2.0)
    margins = SupervectorTraining(vectors, ridge=2.0, pseudo_speakers=made).solution.margins(new)
    np.testing.assert_allclose(margins, among.solution.margins(new)[:, : len(counts)], atol=2e-5)
