"""Trained populations and their margins against scikit-learn's estimators and sums written out."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optima import rbf_kernel
from populations import pair_arrays
from scipy.spatial.distance import cdist
from sklearn.svm import SVC, OneClassSVM

from pipeline.config import MachineConfig
from pipeline.machines.margins import Margins, MarginScorer, Population
from pipeline.machines.pairs import PairMachine, Pairs
from pipeline.machines.pool import Pool
from pipeline.machines.training import machine_count, one_vs_rest, train_population

KINDS = frozenset({"one_vs_one", "one_class", "one_vs_rest"})
SIZES = (30, 1, 17, 40, 25)  # centroids of each speaker
DIMENSION = 6
SIGMA, COST, NU = 0.5, 10.0, 0.2
STOP = 1e-3  # training ends when no pair of points breaks the optimality conditions by more than this
DTYPES = ("float64", "mixed", "float32")
SETTINGS = MachineConfig(kinds=("one_vs_one", "one_class", "one_vs_rest"), sigma=SIGMA, C=COST, nu=NU)


def codebooks(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> list[np.ndarray]:
    """Unequal speakers; the last two are drawn around one place and overlap."""
    generator = np.random.default_rng(seed)
    places = generator.normal(0.0, 0.5, (len(sizes), DIMENSION))
    places[-1] = places[-2]
    return [
        place + 0.25 * generator.standard_normal((size, DIMENSION)) for place, size in zip(places, sizes, strict=True)
    ]


def frames(count: int = 70, seed: int = 1) -> np.ndarray:
    """Test vectors: some near every speaker, some near nobody."""
    generator = np.random.default_rng(seed)
    pool = np.concatenate(codebooks())
    near = pool[generator.integers(len(pool), size=count)] + 0.15 * generator.standard_normal((count, DIMENSION))
    near[::10] += 5.0
    return near


@cache
def population() -> Population:
    return train_population(Pool.of(codebooks(), SIGMA), SETTINGS)


def margins_of(
    people: Population, x: np.ndarray, *, claims: list[int] | None = None, dtype: str = "float64"
) -> Margins:
    numbers = np.arange(len(people)) if claims is None else np.array(claims)
    return MarginScorer(people, numbers, KINDS, dtype=dtype)(x)


PAIRS = [(own, rival) for own in range(len(SIZES)) for rival in range(own)]


# The kernel and the pool.


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 10.0))
def test_kernel_is_scikit_learns_at_the_same_width(seed, sigma):
    generator = np.random.default_rng(seed)
    x, y = generator.standard_normal((7, 24)), generator.standard_normal((5, 24))
    gram = Pool.of([x, y], sigma).gram(0, 1)
    np.testing.assert_allclose(gram, rbf_kernel(x, y, sigma), rtol=1e-9, atol=1e-300)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_kernel_never_exceeds_one_and_is_one_at_no_distance(seed):
    x = 100.0 * np.random.default_rng(seed).standard_normal((6, 24))
    kernel = Pool.of([x], 0.5).gram(0, 0)
    assert kernel.max() <= 1.0
    np.testing.assert_allclose(np.diag(kernel), 1.0, atol=1e-8)


def test_pool_gives_back_every_codebook_and_its_owner():
    books = codebooks()
    pool = Pool.of(books, SIGMA)
    assert len(pool) == len(books)
    for n, book in enumerate(books):
        np.testing.assert_array_equal(pool.codebook(n), book)
        np.testing.assert_array_equal(pool.centroids[pool.owner == n], book)
        np.testing.assert_allclose(pool.gram(n, 0), np.exp(-2.0 * cdist(book, books[0], "sqeuclidean")), rtol=1e-9)


# Machines.


def assert_close(margins: np.ndarray, expected: np.ndarray) -> None:
    """Ours stop at conditions met to 1e-3, the expected ones at the optimum: near it, and the same decisions."""
    np.testing.assert_allclose(margins, expected, atol=10 * STOP)
    assert (np.abs(expected[(margins > 0) != (expected > 0)]) < 10 * STOP).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_margins_are_close_to_scikit_learns_rbf_machines(dtype):
    """scikit-learn's own scale of one-class machines is LIBSVM's, the package's default."""
    pool, x, gamma = population().pool, frames(), 1.0 / (2 * SIGMA**2)
    margins = margins_of(population(), x, dtype=dtype)
    for own, rival in PAIRS:
        training = np.concatenate((pool.codebook(own), pool.codebook(rival)))
        labels = np.repeat([1, -1], [SIZES[own], SIZES[rival]])
        svm = SVC(gamma=gamma, C=COST, tol=1e-9).fit(training, labels)
        assert_close(margins.pair[:, own, rival], svm.decision_function(x))
    for speaker in range(len(SIZES)):
        svm = OneClassSVM(gamma=gamma, nu=NU, tol=1e-9).fit(pool.codebook(speaker))
        assert_close(margins.one_class[:, speaker], svm.decision_function(x))
        svm = SVC(gamma=gamma, C=COST, tol=1e-9).fit(pool.centroids, np.where(pool.owner == speaker, 1, -1))
        assert_close(margins.one_vs_rest[:, speaker], svm.decision_function(x))


def one_class_machine(speaker: int, nu: float, scale: str | float) -> tuple[np.ndarray, float]:
    """Coefficients and bias of one speaker's one-class machine."""
    people = train_population(
        population().pool, MachineConfig(kinds=("one_class",), sigma=SIGMA, nu=nu, one_class_scale=scale)
    )
    return people.one_class_coef[people.pool.rows(speaker)], people.one_class_bias[speaker]


@pytest.mark.parametrize("speaker", range(len(SIZES)))
def test_one_class_scale_sets_the_sum_of_the_coefficients_and_nothing_else(speaker):
    pool, x = population().pool, frames()
    kernel = rbf_kernel(x, pool.codebook(speaker), SIGMA)
    sums = {"schoelkopf": 1.0, "libsvm": NU * SIZES[speaker], 7.5: 7.5, 1e-3: 1e-3}
    machines = {scale: one_class_machine(speaker, NU, scale) for scale in sums}
    unit = kernel @ machines["schoelkopf"][0] + machines["schoelkopf"][1]
    for scale, (coef, bias) in machines.items():
        np.testing.assert_allclose(coef.sum(), sums[scale], rtol=1e-12)
        margin = kernel @ coef + bias
        np.testing.assert_allclose(margin, unit * sums[scale], rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(margin > 1e-9 * sums[scale], unit > 1e-9)


@pytest.mark.parametrize("nu", [0.05, NU, 0.5])
def test_by_ratio_a_one_class_margin_is_relative_to_that_of_the_hyperplane(nu):
    svm = OneClassSVM(gamma=1.0 / (2 * SIGMA**2), nu=nu, tol=1e-9).fit(population().pool.codebook(0))
    coef, bias = one_class_machine(0, nu, "ratio")
    margin = rbf_kernel(frames(), population().pool.codebook(0), SIGMA) @ coef + bias
    assert_close(margin, svm.decision_function(frames()) / svm.offset_[0])  # offset_ is rho
    assert bias == pytest.approx(-1.0)


def test_one_vs_rest_machines_that_may_hold_no_matrix_are_as_good():
    pool = population().pool
    coef, bias = one_vs_rest(pool, SETTINGS.model_copy(update={"gram_gib": 1e-7}))
    kernel = rbf_kernel(frames(), pool.centroids, SIGMA)
    assert_close(kernel @ coef + bias, margins_of(population(), frames()).one_vs_rest)


# Margins as a whole.


def literal_margins(people: Population, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three kinds of margin as sums over centroids, machine by machine."""
    pool, count = people.pool, len(people)
    kernel = np.exp(-cdist(x, pool.centroids, "sqeuclidean") / (2 * pool.sigma**2))
    pair = np.zeros((len(x), count, count))
    for i in range(count):
        for j in range(count):
            if i != j:
                machine = people.pairs.against(i)[j]
                own, rival = kernel[:, pool.rows(i)] @ machine.own, kernel[:, pool.rows(j)] @ machine.rival
                pair[:, i, j] = own - rival + machine.bias
    one_class = np.stack(
        [
            kernel[:, pool.rows(n)] @ people.one_class_coef[pool.rows(n)] + people.one_class_bias[n]
            for n in range(count)
        ],
        axis=1,
    )
    return pair, one_class, kernel @ people.one_vs_rest_coef + people.one_vs_rest_bias


def random_population(seed: int, speakers: int) -> Population:
    """Machines with made-up coefficients: what margins mean does not depend on how the machines were trained."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 9, speakers)
    pool = Pool.of([generator.normal(0, 1, (size, 4)) for size in sizes], float(generator.uniform(0.3, 3.0)))
    machines = {
        (i, j): PairMachine(generator.uniform(0, 10, sizes[i]), generator.uniform(0, 10, sizes[j]), generator.normal())
        for i in range(speakers)
        for j in range(i)
    }
    total = int(sizes.sum())
    return Population(
        pool,
        pairs=Pairs(machines),
        one_class_coef=generator.uniform(0, 1, total),
        one_class_bias=generator.normal(0, 1, speakers),
        one_vs_rest_coef=generator.normal(0, 5, (total, speakers)),
        one_vs_rest_bias=generator.normal(0, 1, speakers),
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), speakers=st.integers(1, 12), data=st.data())
def test_margins_of_any_claims_are_the_sums_over_centroids_machine_by_machine(seed, speakers, data):
    people = random_population(seed, speakers)
    claims = data.draw(st.lists(st.integers(0, speakers - 1), min_size=1, unique=True))
    x = np.random.default_rng(seed).normal(0, 1, (9, 4))
    pair, one_class, one_vs_rest = literal_margins(people, x)
    everybody = margins_of(people, x)
    for margins in (margins_of(people, x, claims=claims), everybody.select(np.array(claims))):
        np.testing.assert_array_equal(margins.slots, claims)
        np.testing.assert_allclose(margins.pair, pair[:, claims], atol=1e-11)
        np.testing.assert_allclose(margins.one_class, one_class, atol=1e-11)
        np.testing.assert_allclose(margins.one_vs_rest, one_vs_rest, atol=1e-11)


@pytest.mark.parametrize("kinds", [{"one_vs_one"}, {"one_class"}, {"one_vs_rest"}, {"one_vs_one", "one_vs_rest"}])
def test_margins_of_some_kinds_are_the_same_as_among_all_kinds(kinds):
    people, x = population(), frames()
    some = MarginScorer(people, np.array([3, 1]), frozenset(kinds))(x)
    everything = margins_of(people, x, claims=[3, 1])
    for kind, name in (("one_vs_one", "pair"), ("one_class", "one_class"), ("one_vs_rest", "one_vs_rest")):
        if kind in kinds:
            np.testing.assert_allclose(getattr(some, name), getattr(everything, name), atol=1e-12)
        else:
            assert getattr(some, name) is None


@pytest.mark.parametrize(("dtype", "sums", "agreement"), [("mixed", "float64", 1e-5), ("float32", "float32", 1e-3)])
def test_margins_of_less_precision_agree_as_they_promise(dtype, sums, agreement):
    rough, exact = (margins_of(population(), frames(), dtype=kind) for kind in (dtype, "float64"))
    for kind in ("pair", "one_class", "one_vs_rest"):
        made, expected = getattr(rough, kind), getattr(exact, kind)
        assert made.dtype == sums
        np.testing.assert_allclose(made, expected, atol=agreement)
        assert not np.array_equal(made, expected), "exponentials in double precision take four times as long"


def test_features_far_from_the_origin_cost_single_precision_nothing():
    shift = 300.0
    moved = train_population(Pool.of([book + shift for book in codebooks()], SIGMA), SETTINGS)
    double = margins_of(moved, frames() + shift)
    single = margins_of(moved, frames() + shift, dtype="float32")
    np.testing.assert_allclose(single.pair, double.pair, atol=1e-3)
    assert single.pair.dtype == np.float32


def test_frames_far_from_everybody_get_the_bias_of_each_machine():
    people = population()
    margins = margins_of(people, np.full((1, DIMENSION), 1e4))
    biases = [[of[j].bias if i != j else 0.0 for j in range(5)] for i in range(5) if (of := people.pairs.against(i))]
    np.testing.assert_allclose(margins.pair[0], biases, atol=1e-12)
    np.testing.assert_allclose(margins.one_class[0], people.one_class_bias, atol=1e-12)


# Populations that grow.


@pytest.mark.parametrize("cohort", ["all", 100])
@pytest.mark.parametrize("first", [1, 3])
def test_a_population_that_grew_has_the_machines_of_training_at_once(first, cohort):
    configuration = SETTINGS.model_copy(update={"cohort": cohort})
    known = train_population(Pool.of(codebooks()[:first], SIGMA), configuration)
    grown, expected = train_population(population().pool, configuration, known=known), population()
    np.testing.assert_equal(pair_arrays(grown), pair_arrays(expected))
    for name in ("one_class_coef", "one_class_bias"):
        np.testing.assert_array_equal(getattr(grown, name), getattr(expected, name))
    margins, others = (margins_of(people, frames()).one_vs_rest for people in (grown, expected))
    assert_close(margins, others)


@pytest.mark.parametrize("kinds", [("one_class",), ("one_class", "one_vs_one"), ("one_class", "one_vs_rest"), None])
@pytest.mark.parametrize(("first", "speakers"), [(0, 1), (0, 2), (3, 5)])
def test_machine_count_is_the_number_of_machines_trained(kinds, first, speakers):
    configuration = SETTINGS if kinds is None else MachineConfig(kinds=kinds)
    known = train_population(Pool.of(codebooks()[:first], SIGMA), configuration) if first else None
    trained: list[int] = []
    train_population(Pool.of(codebooks()[:speakers], SIGMA), configuration, known=known, progress=trained.append)
    literal = len(range(first, speakers))
    if "one_vs_one" in configuration.kinds:
        literal += sum(1 for own in range(speakers) for rival in range(own) if own >= first)
    if "one_vs_rest" in configuration.kinds and speakers > 1:
        literal += speakers
    assert sum(trained) == machine_count(speakers, first, configuration) == literal


def test_single_speaker_has_a_one_class_machine_and_no_rivals():
    people = train_population(Pool.of(codebooks()[:1], SIGMA), SETTINGS)
    x = frames()
    assert people.one_vs_rest_coef is None
    margins = margins_of(people, x)
    svm = OneClassSVM(gamma=1.0 / (2 * SIGMA**2), nu=NU, tol=1e-9).fit(codebooks()[0])
    assert_close(margins.one_class[:, 0], svm.decision_function(x))
    np.testing.assert_array_equal(margins.pair, np.zeros((len(x), 1, 1)))
    assert margins.one_vs_rest is None


def test_no_frames_give_no_margins():
    margins = margins_of(population(), np.empty((0, DIMENSION)), claims=[1, 2])
    assert (margins.pair.shape, margins.one_class.shape, margins.one_vs_rest.shape) == ((0, 2, 5), (0, 5), (0, 5))


def test_speakers_with_the_same_codebook_get_finite_machines():
    book = codebooks()[0]
    margins = margins_of(train_population(Pool.of([book, book.copy()], SIGMA), SETTINGS), frames())
    np.testing.assert_allclose(margins.pair, 0.0, atol=10 * STOP)
    assert np.isfinite(margins.one_class).all()
