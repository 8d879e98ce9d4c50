"""Pair machines of a population that has grown are those of the whole, whoever asks for whatever of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.machines.grown_pairs import GrownPairs
from pipeline.machines.population import PairBlock


def grown(whole: PairBlock, first: int, speakers: int) -> GrownPairs:
    """``whole`` as the machines of its ``first`` speakers and those of the others up to ``speakers``."""
    weights = [rows[:, :speakers] for rows in whole.weights[:speakers]]
    return GrownPairs(
        PairBlock(tuple(rows[:, :first] for rows in weights[:first]), whole.biases[:first, :first]),
        tuple(weights[first:]),
        tuple(rows[:, first:] for rows in weights[:first]),
        whole.biases[first:speakers, :speakers],
    )


@settings(max_examples=200, deadline=None)
@given(data=st.data(), speakers=st.integers(2, 7), family=st.sampled_from([(), (3,)]), seed=st.integers(0, 2**32 - 1))
def test_what_is_asked_of_grown_pairs_is_what_the_whole_holds(data, speakers, family, seed):
    rng = np.random.default_rng(seed)
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=speakers, max_size=speakers))
    biases = rng.standard_normal((speakers, speakers, *family))
    whole = PairBlock(
        tuple(rng.standard_normal((size, speakers, *family)) for size in sizes), biases - np.swapaxes(biases, 0, 1)
    )
    first = data.draw(st.integers(1, speakers - 1))
    found = grown(whole, first, speakers)
    if first > 1:  # grown twice
        inner = data.draw(st.integers(1, first - 1))
        found = GrownPairs(grown(whole, inner, first), found.own, found.against, found.biases)
    claims = np.array(data.draw(st.lists(st.integers(0, speakers - 1), max_size=9)), dtype=np.int64)
    for n in range(speakers):
        np.testing.assert_array_equal(found.rows(n), whole.rows(n))
    np.testing.assert_array_equal(found.columns(claims), whole.columns(claims))
    np.testing.assert_array_equal(found.bias(claims), whole.bias(claims))
