"""Cohorts: the most similar speakers, the pair machines that are kept, and claims judged within them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from conftest import pair_arrays
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import rbf_kernel

from pipeline.config import MachineConfig, load_config
from pipeline.enrollment.holdout import HeldOutScoring
from pipeline.errors import ConfigError, StoreFormatError
from pipeline.features.stream import FeatureBlock
from pipeline.machines.cohorts import (
    CodebookSimilarity,
    Cohorts,
    CohortTable,
    cohorts_without,
    ever_in_cohort,
    most_similar_of,
)
from pipeline.machines.margins import MarginScorer, Population
from pipeline.machines.pairs import Pairs
from pipeline.machines.pool import Pool
from pipeline.machines.supervectors import SupervectorMachines
from pipeline.machines.training import train_population
from pipeline.machines.ubm import UniversalBackgroundModel
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring.claims import ClaimScorer, ScoringSettings

SPEAKERS = 8
SIGMA = 0.5
MACHINES = MachineConfig(sigma=SIGMA, nu=0.2)
REST = ("boar", "poar")
SYSTEMS = ("poao", "rpoao", "worst_rival", "refined_worst_rival", "supervector", "supervector_rival")


@st.composite
def tables(draw: st.DrawFn, least: int = 1) -> np.ndarray:
    """CodebookSimilarity (N, N) of everybody to everybody, of few numbers, so that there are ties."""
    count = draw(st.integers(least, 9))
    size = count * count
    values = np.array(draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=size, max_size=size)))
    square = values.reshape(count, count)
    return np.maximum(square, square.T)


@cache
def books() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.normal(0.4 * random.standard_normal(3), 0.5, (5 + n % 4, 3)) for n in range(SPEAKERS)]


def with_rivals(most: int | str) -> MachineConfig:
    return MACHINES.model_copy(update={"cohort": most})


@cache
def population(most: int | str) -> Population:
    random = np.random.default_rng(5)
    space = UniversalBackgroundModel(
        np.zeros(3), np.ones(3), random.standard_normal((4, 3)), np.ones((4, 3)), np.full(4, 0.25), 2.0
    )
    coef = random.standard_normal((12, SPEAKERS))
    made = train_population(Pool.of(books(), SIGMA), with_rivals(most))
    return replace(made, supervectors=SupervectorMachines(space, random.standard_normal(12), coef))


def speech(frames: int = 90, seed: int = 1) -> FeatureBlock:
    random = np.random.default_rng(seed)
    return FeatureBlock(random.normal(0.0, 0.7, (frames, 3)), frames, random.uniform(0.0, 35.0, frames))


def scores_of(scorer: ClaimScorer, x: FeatureBlock) -> dict[str, np.ndarray]:
    running = scorer.start()
    running.push(x)
    return running.scores()


# CodebookSimilarity


def test_hardness_is_the_cosine_of_the_codebooks_means_in_the_kernels_space():
    pool, gamma = Pool.of(books(), SIGMA), 1 / (2 * SIGMA**2)
    found = CodebookSimilarity(pool)
    for one in range(SPEAKERS):
        for other in range(SPEAKERS):
            between = rbf_kernel(books()[one], books()[other], gamma).mean()
            within = [rbf_kernel(books()[n], books()[n], gamma).mean() for n in (one, other)]
            assert found(one, other) == pytest.approx(between / np.sqrt(within[0] * within[1]), abs=1e-12)
            assert found(one, other) == found(other, one)
            assert 0.0 <= found(one, other) <= 1.0 + 1e-12


# The table, and which machines there are


def grown(values: np.ndarray, most: int) -> tuple[CohortTable, set[tuple[int, int]]]:
    """The table and the pairs of speakers who come one by one, of this hardness (N, N)."""
    table, pairs = CohortTable.of_nobody(), set()
    for later in range(len(values)):
        table, rivals = table.with_newcomer(values[later, :later], most)
        pairs |= {(later, int(earlier)) for earlier in rivals}
    return table, pairs


def literal_pairs(values: np.ndarray, most: int) -> set[tuple[int, int]]:
    """As the module says it: i is among the hardest of j so far, or j among those of i."""
    found = set()
    for later in range(len(values)):
        for earlier in range(later):
            for one, other in ((later, earlier), (earlier, later)):
                others = [n for n in range(later + 1) if n != one]
                ranked = sorted(others, key=lambda n, one=one: (-values[one, n], n))
                if other in ranked[:most]:
                    found.add((later, earlier))
    return found


@given(values=tables(), most=st.integers(1, 9))
def test_speakers_who_come_one_by_one_have_the_machines_that_the_rule_says(values, most):
    table, pairs = grown(values, most)
    assert pairs == literal_pairs(values, most)
    ever = [ever_in_cohort(values[n], n, most) for n in range(len(values))]
    assert pairs == {(j, i) for j in range(len(values)) for i in range(j) if ever[j][i] or ever[i][j]}
    assert table.nearest.shape == table.similarity.shape == (len(values), min(most, len(values) - 1))
    for one in range(len(values)):
        others = np.delete(np.arange(len(values)), one)
        best = others[most_similar_of(values[one, others], most)]
        np.testing.assert_array_equal(table.nearest[one], best)
        np.testing.assert_array_equal(table.similarity[one], values[one, best])
        assert {(max(one, int(n)), min(one, int(n))) for n in best} <= pairs


@given(values=tables(least=2), most=st.integers(1, 9), data=st.data())
def test_a_table_without_a_speaker_is_that_of_the_others(values, most, data):
    gone = data.draw(st.integers(0, len(values) - 1))
    table, pairs = grown(values, most)
    left = np.delete(np.delete(values, gone, axis=0), gone, axis=1)
    affected = [n for n in range(len(values)) if n != gone and (max(n, gone), min(n, gone)) in pairs]
    numbers = [n - (n > gone) for n in affected]
    found = table.without(gone, {n: left[n] for n in numbers}, most)
    expected, expected_pairs = grown(left, most)
    np.testing.assert_array_equal(found.nearest, expected.nearest)
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    kept = {(j - (j > gone), i - (i > gone)) for j, i in pairs if gone not in (i, j)}
    wanted = {
        (max(n, int(i)), min(n, int(i))) for n in numbers for i in np.flatnonzero(ever_in_cohort(left[n], n, most))
    }
    assert kept | wanted == expected_pairs


# Training


def assert_same_machines(found: Population, expected: Population) -> None:
    np.testing.assert_array_equal(found.cohort_table.nearest, expected.cohort_table.nearest)
    np.testing.assert_array_equal(found.cohort_table.similarity, expected.cohort_table.similarity)
    ours, theirs = pair_arrays(found), pair_arrays(expected)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)


@pytest.mark.parametrize("most", [1, 3, SPEAKERS])
def test_machines_against_rivals_are_those_against_everybody_bit_for_bit(most):
    some, every = pair_arrays(population(most)), pair_arrays(population("all"))
    for name, array in some.items():
        np.testing.assert_array_equal(array, every[name], err_msg=name)
    count = len(some) // 6  # three arrays, from two sides
    assert (count == SPEAKERS * (SPEAKERS - 1) // 2) == (most == SPEAKERS)
    assert count <= 2 * most * SPEAKERS


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("jobs", [1, 3])
def test_speakers_added_one_by_one_have_the_machines_of_all_at_once_bit_for_bit(most, jobs):
    known = None
    for count in (1, 2, 3, 6, SPEAKERS):
        told: list[int] = []
        known = train_population(
            Pool.of(books()[:count], SIGMA), with_rivals(most), known=known, jobs=jobs, progress=told.append
        )
    assert_same_machines(known, population(most))


@pytest.mark.parametrize("most", [1, 2, 4, SPEAKERS])
@pytest.mark.parametrize("gone", [0, 3, SPEAKERS - 1])
def test_without_a_speaker_there_are_the_machines_of_the_others_trained_alone(most, gone):
    people, left = population(most), [book for n, book in enumerate(books()) if n != gone]
    pool = Pool.of(left, SIGMA)
    table, trained = cohorts_without(gone, pool, people.cohort_table, people.pairs, with_rivals(most))
    expected = train_population(pool, with_rivals(most))
    np.testing.assert_array_equal(table.nearest, expected.cohort_table.nearest)
    for later in range(len(pool)):
        new = {earlier: machine for (second, earlier), machine in trained.items() if second == later}
        number = later + (later >= gone)
        kept = [n - (n > gone) for n in people.pairs.against(number) if n < number and n != gone]
        assert not set(kept) & set(new)
        assert sorted([*kept, *new]) == sorted(n for n in expected.pairs.against(later) if n < later)
        for earlier, machine in new.items():
            np.testing.assert_array_equal(machine.own, expected.pairs.against(later)[earlier].own)


def test_machines_over_a_known_source_are_those_of_the_whole():
    every = {(i, j): population("all").pairs.against(i)[j] for i in range(SPEAKERS) for j in range(i)}
    known = Pairs({pair: machine for pair, machine in every.items() if pair[0] < 5})
    grown = Pairs({pair: machine for pair, machine in every.items() if pair[0] >= 5}, known)
    for speaker in range(SPEAKERS):
        whole, found = Pairs(every).against(speaker), grown.against(speaker)
        assert sorted(found) == sorted(whole) == [n for n in range(SPEAKERS) if n != speaker]
        assert all(found[n].own is whole[n].own and found[n].bias == whole[n].bias for n in whole)
    assert not grown.against(SPEAKERS)


def test_a_claim_without_a_machine_against_a_member_of_its_cohort_is_an_error():
    people = population(2)
    absent = next(n for n in range(1, SPEAKERS) if n not in people.pairs.against(0))
    with pytest.raises(StoreFormatError, match=f"no pair machine of speakers 0 and {absent}"):
        MarginScorer(people, np.array([0]), frozenset({"one_vs_one"}), Cohorts.of([0], np.array([[absent]])))


# Claims


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("most", [SPEAKERS - 1, SPEAKERS + 5])
def test_among_as_many_rivals_as_there_are_a_claim_scores_as_among_everybody(most, dtype):
    how = ScoringSettings(FixedSigmoid(), dtype=dtype)
    for claims in ([4], [7, 0, 3], list(range(SPEAKERS))):
        found = scores_of(ClaimScorer(population(most), claims, (*REST, *SYSTEMS), how), speech())
        expected = scores_of(ClaimScorer(population("all"), claims, (*REST, *SYSTEMS), how), speech())
        assert list(found) == list(expected)
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, atol=1e-12 if dtype == "float64" else 1e-6, err_msg=name)


@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_claim_scores_as_in_a_population_of_its_panel_alone(most):
    people, how = population(most), ScoringSettings(FixedSigmoid(2.0))
    claims = [6, 0, 3]
    found = scores_of(ClaimScorer(people, claims, SYSTEMS, how), speech())
    for slot, claim in enumerate(claims):
        members = sorted([claim, *people.cohort_table.nearest[claim].tolist()])
        alone = train_population(Pool.of([books()[n] for n in members], SIGMA), MACHINES)
        expected = scores_of(ClaimScorer(alone, [members.index(claim)], SYSTEMS[:4], how), speech())
        for name in SYSTEMS[:4]:
            assert found[name][slot] == pytest.approx(expected[name][0], abs=1e-12), name


def test_rules_of_one_vs_rest_and_segment_machines_judge_among_everybody_whatever_the_cohort():
    how, names = ScoringSettings(FixedSigmoid()), (*REST, "supervector", "supervector_rival")
    found = scores_of(ClaimScorer(population(2), [5, 1], (*names, "worst_rival"), how), speech())
    expected = scores_of(ClaimScorer(population("all"), [5, 1], names, how), speech())
    for name in names:
        np.testing.assert_array_equal(found[name], expected[name])


@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, 90), max_size=4))
def test_speech_in_any_pieces_scores_the_same_within_cohorts(cuts):
    scorer, x = ClaimScorer(population(3), [2, 5], SYSTEMS, ScoringSettings(FixedSigmoid())), speech()
    running, at = scorer.start(), [0, *sorted(cuts), 90]
    for start, end in pairwise(at):
        running.push(x.part(slice(start, end)))
    for name, values in scores_of(scorer, x).items():
        np.testing.assert_allclose(running.scores()[name], values, atol=1e-12, err_msg=name)


def test_cohorts_are_the_claims_and_their_rivals_in_order():
    cohorts = Cohorts.of([5, 0], np.array([[7, 2], [2, 4]]))
    np.testing.assert_array_equal(cohorts.members, [[2, 5, 7], [0, 2, 4]])
    np.testing.assert_array_equal(cohorts.slots, [1, 0])
    np.testing.assert_array_equal(cohorts.speakers, [0, 2, 4, 5, 7])
    np.testing.assert_array_equal(cohorts.numbered().members, [[1, 3, 4], [0, 1, 2]])
    np.testing.assert_array_equal(cohorts.numbered().claims, [3, 0])


@pytest.mark.parametrize("most", [2, 3])
def test_a_false_claim_by_an_outsider_is_judged_without_them(most):
    """As the scores of a cohort that the speaker was taken out of."""
    kinds = 'machines.kinds=["one_vs_one","one_class"]'
    config, names = load_config(None, [f"machines.cohort={most}", "scoring.system=worst_rival", kinds]), SYSTEMS[2:4]
    people, everybody = population(most), list(range(SPEAKERS))
    trials = HeldOutScoring(config, people, None, everybody, everybody).score(3, speech())
    np.testing.assert_array_equal(trials.population, SPEAKERS)
    how = ScoringSettings(FixedSigmoid(), config.scoring.dtype)
    running = ClaimScorer(people, everybody, names, how).start()
    running.push(speech())
    for name in names:
        claims = trials.claims[trials.unknown].astype(int)
        assert claims.tolist() == [n for n in everybody if n != 3]
        for claim, score in zip(claims, trials.scores[name][trials.unknown], strict=True):
            members = sorted([claim, *people.cohort_table.nearest[claim].tolist()])
            left = [slot for slot, member in enumerate(members) if member not in (3, claim)]
            assert score == pytest.approx(running.sums[name][claim][left].min() / running.frames, abs=1e-12)


def test_with_a_single_rival_there_are_no_false_claims_by_outsiders():
    """Without them there would be nobody to compare the claim with."""
    config = load_config(
        None, ["machines.cohort=1", "scoring.system=poao", 'machines.kinds=["one_vs_one","one_class"]']
    )
    trials = HeldOutScoring(config, population(1), None, [0, 1, 2], list(range(SPEAKERS))).score(3, speech())
    assert not trials.unknown.any()
    assert all(np.isfinite(values).all() for values in trials.scores.values())


# Settings


@pytest.mark.parametrize("value", ["0", "-3", "1.5", '"some"', "true"])
def test_a_number_of_rivals_is_all_or_a_whole_number_from_1_on(value):
    with pytest.raises(ConfigError, match=r"machines\.cohort"):
        load_config(None, [f"machines.cohort={value}"])


def test_rivals_without_pair_machines_or_with_fitted_maps_are_refused():
    with pytest.raises(ConfigError, match=r"cohort = 5: .*one_vs_one"):
        load_config(None, ["machines.cohort=5", 'machines.kinds=["one_class"]'])
    with pytest.raises(ConfigError, match=r"machines\.cohort = 5: .*posterior\.kind = 'platt'"):
        load_config(None, ["machines.cohort=5", "posterior.kind=platt"])
