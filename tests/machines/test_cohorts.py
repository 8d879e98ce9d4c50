"""Cohorts: the most similar speakers, the pair machines that are kept, and claims judged within them."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from populations import pair_arrays
from sklearn.metrics.pairwise import rbf_kernel

from pipeline.config import Config, MachineConfig, load_config
from pipeline.enrollment.heldout_scoring import HeldOutScoring
from pipeline.errors import StoreFormatError
from pipeline.features.stream import FeatureBlock
from pipeline.machines.cohorts import (
    Cohorts,
    CohortTable,
    codebook_similarity,
    cohorts_without,
    ever_in_cohort,
    most_similar_of,
)
from pipeline.machines.margins import MarginScorer, Population
from pipeline.machines.pool import Pool
from pipeline.machines.supervectors import SupervectorMachines
from pipeline.machines.training import train_population
from pipeline.machines.ubm import UniversalBackgroundModel
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring.claims import ClaimScorer, ScoringSettings

SPEAKERS = 8
SIGMA = 0.5
MACHINES = MachineConfig(kinds=("one_vs_one", "one_class", "one_vs_rest"), sigma=SIGMA, nu=0.2)
EVERYBODY = ("boar", "poar", "supervector", "supervector_rival")
WITHIN = ("poao", "rpoao", "worst_rival", "refined_worst_rival")


@st.composite
def tables(draw: st.DrawFn, least: int = 1) -> np.ndarray:
    """Similarities (N, N) of few values, so that there are ties."""
    count = draw(st.integers(least, 9))
    size = count * count
    values = np.array(draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=size, max_size=size)))
    square = values.reshape(count, count)
    return np.maximum(square, square.T)


@cache
def books() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.normal(0.4 * random.standard_normal(3), 0.5, (5 + n % 4, 3)) for n in range(SPEAKERS)]


def cohort_of(most: int | str) -> MachineConfig:
    return MACHINES.model_copy(update={"cohort": most})


@cache
def population(most: int | str) -> Population:
    random = np.random.default_rng(5)
    space = UniversalBackgroundModel(
        np.zeros(3), np.ones(3), random.standard_normal((4, 3)), np.ones((4, 3)), np.full(4, 0.25), 2.0
    )
    coef = random.standard_normal((SPEAKERS, 12), dtype=np.float32)
    made = train_population(Pool.of(books(), SIGMA), cohort_of(most))
    return replace(made, utterance={"supervector": SupervectorMachines((space,), random.standard_normal(12), coef)})


def speech(frames: int = 90, seed: int = 1) -> FeatureBlock:
    random = np.random.default_rng(seed)
    return FeatureBlock(random.normal(0.0, 0.7, (frames, 3)), frames, random.uniform(0.0, 35.0, frames))


def scores_of(scorer: ClaimScorer, x: FeatureBlock) -> dict[str, np.ndarray]:
    running = scorer.start()
    running.push(x)
    return running.scores()


def test_similarity_is_the_cosine_of_the_codebooks_means_in_the_kernels_space():
    pool, gamma = Pool.of(books(), SIGMA), 1 / (2 * SIGMA**2)
    means = np.array([[rbf_kernel(one, other, gamma).mean() for other in books()] for one in books()])
    values = np.array([codebook_similarity(pool, speaker, range(SPEAKERS)) for speaker in range(SPEAKERS)])
    np.testing.assert_allclose(values, means / np.sqrt(np.outer(means.diagonal(), means.diagonal())), atol=1e-12)
    np.testing.assert_array_equal(values, values.T)
    assert values.min() >= 0.0


# The table, and which machines there are


def grown(values: np.ndarray, most: int) -> tuple[CohortTable, set[tuple[int, int]]]:
    """The table and the pairs of speakers who come one by one, of these similarities (N, N)."""
    table, pairs = CohortTable.of_nobody(), set()
    for later in range(len(values)):
        table, others = table.with_newcomer(values[later, :later], most)
        pairs |= {(later, int(earlier)) for earlier in others}
        table.nearest.flags.writeable = table.similarity.flags.writeable = False  # a store goes on to hold it
    return table, pairs


def literal_pairs(values: np.ndarray, most: int) -> set[tuple[int, int]]:
    """The pairs of which i is among the most similar to j so far, or j among those of i."""
    pairs = set()
    for later in range(len(values)):
        for earlier in range(later):
            for one, other in ((later, earlier), (earlier, later)):
                others = [n for n in range(later + 1) if n != one]
                ranked = sorted(others, key=lambda n, one=one: (-values[one, n], n))
                if other in ranked[:most]:
                    pairs.add((later, earlier))
    return pairs


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
    remaining = table.without(gone, {n: left[n] for n in numbers}, most)
    expected, expected_pairs = grown(left, most)
    np.testing.assert_array_equal(remaining.nearest, expected.nearest)
    np.testing.assert_array_equal(remaining.similarity, expected.similarity)
    kept = {(j - (j > gone), i - (i > gone)) for j, i in pairs if gone not in (i, j)}
    wanted = {
        (max(n, int(i)), min(n, int(i))) for n in numbers for i in np.flatnonzero(ever_in_cohort(left[n], n, most))
    }
    assert kept | wanted == expected_pairs


# Training


@pytest.mark.parametrize("most", [1, 3, SPEAKERS])
def test_machines_against_a_cohort_are_those_against_everybody_bit_for_bit(most):
    some, every = pair_arrays(population(most)), pair_arrays(population("all"))
    np.testing.assert_equal(some, {name: every[name] for name in some})
    count = len(some) // 6  # three arrays, from two sides
    assert (count == SPEAKERS * (SPEAKERS - 1) // 2) == (most == SPEAKERS)
    assert count <= 2 * most * SPEAKERS


def test_a_claim_without_a_machine_against_a_member_of_its_cohort_is_an_error():
    people = population(2)
    absent = next(n for n in range(1, SPEAKERS) if n not in people.pairs.against(0))
    with pytest.raises(StoreFormatError, match=f"no pair machine of speakers 0 and {absent}"):
        MarginScorer(people, np.array([0]), frozenset({"one_vs_one"}), Cohorts.of([0], np.array([[absent]])))


@pytest.mark.parametrize("gone", [0, 4, SPEAKERS - 1])
@pytest.mark.parametrize("most", [1, 3, SPEAKERS])
def test_without_a_speaker_machines_are_those_of_training_the_others_alone(most, gone):
    people, left = population(most), [n for n in range(SPEAKERS) if n != gone]
    pool = Pool.of([books()[n] for n in left], SIGMA)
    table, trained = cohorts_without(gone, pool, people.cohort_table, people.pairs, cohort_of(most))
    expected = train_population(pool, cohort_of(most))
    np.testing.assert_array_equal(table.nearest, expected.cohort_table.nearest)
    np.testing.assert_array_equal(table.similarity, expected.cohort_table.similarity)
    kept = {(left.index(j), left.index(i)) for j in left for i in people.pairs.against(j) if i in left and i < j}
    wanted = {(j, i) for j in range(len(left)) for i in expected.pairs.against(j) if i < j}
    assert set(trained) == wanted - kept
    assert kept <= wanted
    for (j, i), machine in trained.items():
        np.testing.assert_equal(asdict(machine), asdict(expected.pairs.against(j)[i]))


def test_speakers_of_some_cohorts_are_numbered_by_their_places_among_these():
    cohorts = Cohorts.of([6, 2], np.array([[4, 9], [9, 0]])).numbered()
    np.testing.assert_array_equal(cohorts.members, [[2, 3, 4], [0, 1, 4]])
    np.testing.assert_array_equal(cohorts.claims, [3, 1])


def test_without_pair_machines_there_are_no_cohorts():
    configuration = MachineConfig(kinds=("one_class",), cohort=2)
    assert train_population(Pool.of(books(), SIGMA), configuration).cohort_table is None


# Claims


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-6)])
@pytest.mark.parametrize("most", [SPEAKERS - 1, SPEAKERS + 5])
def test_in_a_cohort_of_everybody_a_claim_scores_as_among_everybody(most, dtype, tolerance):
    how, systems = ScoringSettings(FixedSigmoid(), dtype=dtype), (*EVERYBODY, *WITHIN)
    for claims in ([4], [7, 0, 3]):
        scores, expected = (
            scores_of(ClaimScorer(population(size), claims, systems, how), speech()) for size in (most, "all")
        )
        for name in systems:
            np.testing.assert_allclose(scores[name], expected[name], atol=tolerance, err_msg=name)


@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_claim_scores_as_in_a_population_of_its_cohort_alone(most):
    people, how = population(most), ScoringSettings(FixedSigmoid(2.0))
    claims = [6, 0, 3]
    scores = scores_of(ClaimScorer(people, claims, WITHIN, how), speech())
    for slot, claim in enumerate(claims):
        members = sorted([claim, *people.cohort_table.nearest[claim].tolist()])
        alone = train_population(Pool.of([books()[n] for n in members], SIGMA), MACHINES)
        expected = scores_of(ClaimScorer(alone, [members.index(claim)], WITHIN, how), speech())
        for name in WITHIN:
            assert scores[name][slot] == pytest.approx(expected[name][0], abs=1e-12), name


def test_rules_of_one_vs_rest_and_segment_machines_judge_among_everybody_whatever_the_cohort():
    how = ScoringSettings(FixedSigmoid())
    scores = scores_of(ClaimScorer(population(2), [5, 1], (*EVERYBODY, "worst_rival"), how), speech())
    expected = scores_of(ClaimScorer(population("all"), [5, 1], EVERYBODY, how), speech())
    for name in EVERYBODY:
        np.testing.assert_array_equal(scores[name], expected[name])


def config_of(most: int, system: str) -> Config:
    kinds = 'machines.kinds=["one_vs_one","one_class"]'
    return load_config(None, [f"machines.cohort={most}", f"scoring.system={system}", kinds])


@pytest.mark.parametrize("most", [2, 3])
def test_a_nontarget_claim_by_an_unknown_impostor_is_judged_without_them(most):
    """As the scores of a cohort that the speaker was taken out of."""
    config, names = config_of(most, "worst_rival"), ("worst_rival", "refined_worst_rival")
    people, everybody = population(most), list(range(SPEAKERS))
    trials = HeldOutScoring(config, people, {}, everybody, everybody).score(3, [speech()])[0]
    np.testing.assert_array_equal(trials.population, SPEAKERS)
    how = ScoringSettings(FixedSigmoid(), config.scoring.dtype, frame_subsampling=config.scoring.frame_subsampling)
    running = ClaimScorer(people, everybody, names, how).start()
    running.push(speech())
    for name in names:
        claims = trials.claims[trials.unknown].astype(int)
        assert claims.tolist() == [n for n in everybody if n != 3]
        for claim, score in zip(claims, trials.scores[name][trials.unknown], strict=True):
            members = sorted([claim, *people.cohort_table.nearest[claim].tolist()])
            left = [slot for slot, member in enumerate(members) if member not in (3, claim)]
            assert score == pytest.approx(running.utterance_statistics().means[name][claim][left].min(), abs=1e-12)


def test_with_a_cohort_of_one_there_are_no_claims_by_unknown_impostors():
    """Without them there would be nobody to compare the claim with."""
    scoring = HeldOutScoring(config_of(1, "poao"), population(1), {}, [0, 1, 2], list(range(SPEAKERS)))
    (trials,) = scoring.score(3, [speech()])
    assert not trials.unknown.any()
    assert all(np.isfinite(values).all() for values in trials.scores.values())
