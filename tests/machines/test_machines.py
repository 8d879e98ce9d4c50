"""Codebooks and machines against scikit-learn's own estimators and against the conditions that define an optimum."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from conftest import pair_arrays
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import rbf_kernel as sklearn_rbf_kernel
from sklearn.svm import SVC, OneClassSVM

from pipeline.config import CodebookConfig, MachineConfig
from pipeline.machines.codebook import fit_codebook
from pipeline.machines.margins import Margins, MarginScorer, Population
from pipeline.machines.pairs import PairMachine, Pairs
from pipeline.machines.pool import Pool, rbf_kernel
from pipeline.machines.training import machine_count, one_vs_rest, train_population

KINDS = frozenset({"one_vs_one", "one_class", "one_vs_rest"})
SIZES = (30, 1, 17, 40, 25)  # centroids of each speaker
DIMENSION = 6
SIGMA, COST, NU = 0.5, 10.0, 0.2
STOP = 1e-3  # training ends when no pair of points breaks the optimality conditions by more than this
# It sees kernel values in float32: their last place, for each unit of the coefficients' sum.
ROUNDING = 1.2e-7
DTYPES = ("float64", "mixed", "float32")
SETTINGS = MachineConfig(sigma=SIGMA, C=COST, nu=NU)


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
    expected = sklearn_rbf_kernel(x, y, gamma=1.0 / (2.0 * sigma**2))
    np.testing.assert_allclose(rbf_kernel(x, y, sigma), expected, rtol=1e-9, atol=1e-300)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_kernel_never_exceeds_one_and_is_one_at_no_distance(seed):
    x = 100.0 * np.random.default_rng(seed).standard_normal((6, 24))
    found = rbf_kernel(x, x, 0.5)
    assert found.max() <= 1.0
    np.testing.assert_allclose(np.diag(found), 1.0, atol=1e-8)


def test_pool_gives_back_every_codebook_and_its_owner():
    books = codebooks()
    pool = Pool.of(books, SIGMA)
    assert len(pool) == len(books)
    for n, book in enumerate(books):
        np.testing.assert_array_equal(pool.codebook(n), book)
        np.testing.assert_array_equal(pool.centroids[pool.owner == n], book)
        np.testing.assert_allclose(pool.gram(n, 0), np.exp(-2.0 * cdist(book, books[0], "sqeuclidean")), rtol=1e-9)


# Pair machines.


@pytest.mark.parametrize(("own", "rival"), PAIRS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_pair_margins_are_close_to_scikit_learns_rbf_machine(own, rival, dtype):
    pool, x = population().pool, frames()
    training = np.concatenate((pool.codebook(own), pool.codebook(rival)))
    labels = np.repeat([1, -1], [SIZES[own], SIZES[rival]])
    svm = SVC(kernel="rbf", gamma=1.0 / (2 * SIGMA**2), C=COST, tol=1e-9).fit(training, labels)
    assert_close(margins_of(population(), x, dtype=dtype).pair[:, own, rival], svm.decision_function(x))


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    """Ours stops at conditions met to 1e-3, the expected margins at the optimum: near it, and the same decisions."""
    np.testing.assert_allclose(found, expected, atol=10 * STOP)
    assert (np.abs(expected[(found > 0) != (expected > 0)]) < 10 * STOP).all()


def assert_optimal(gram: np.ndarray, labels: np.ndarray, coef: np.ndarray, bias: float, cost: float) -> None:
    """The Karush-Kuhn-Tucker conditions of the soft-margin problem, which no other solution meets."""
    alpha = coef * labels
    assert alpha.min() >= 0.0
    assert alpha.max() <= cost * (1 + 1e-12)
    assert abs(coef.sum()) <= 1e-9 * max(1.0, alpha.sum())
    slack, stop = labels * (gram @ coef + bias) - 1.0, STOP + ROUNDING * alpha.sum()
    assert (slack[alpha < cost * (1 - 1e-12)] >= -stop).all()  # outside the margin or on it, unless at its bound
    assert (slack[alpha > 0.0] <= stop).all()  # a support vector is on the margin or inside


@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0, 1000.0])
@pytest.mark.parametrize("seed", range(3))
def test_pair_machine_meets_the_conditions_of_an_optimum(seed, cost):
    pool = Pool.of(codebooks(seed), SIGMA)
    people = train_population(pool, MachineConfig(kinds=("one_vs_one", "one_class"), sigma=SIGMA, C=cost))
    for own, rival in PAIRS:
        machine = people.pairs.against(own)[rival]
        own_coef, rival_coef = machine.own, machine.rival
        training = np.concatenate((pool.codebook(own), pool.codebook(rival)))
        assert min(own_coef.min(), rival_coef.min()) >= 0.0
        assert_optimal(
            np.exp(-cdist(training, training, "sqeuclidean") / (2 * SIGMA**2)),
            np.repeat([1.0, -1.0], [len(own_coef), len(rival_coef)]),
            np.concatenate((own_coef, -rival_coef)),
            machine.bias,
            cost,
        )


def test_pair_machine_of_one_point_each_is_the_hand_worked_one():
    # Two points with kernel value k: alpha = 1 / (1 - k) each, no bias, margins 1 and -1.
    pool = Pool.of([np.array([[0.0]]), np.array([[1.0]])], 1.0)
    pairs = train_population(pool, MachineConfig(kinds=("one_vs_one", "one_class"), sigma=1.0, C=100.0)).pairs
    alpha = 1.0 / (1.0 - np.exp(-0.5))
    for machine in (pairs.against(0)[1], pairs.against(1)[0]):
        np.testing.assert_allclose([machine.own[0], machine.rival[0]], [alpha, alpha], rtol=STOP)
        assert machine.bias == pytest.approx(0.0, abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_pair_margins_are_antisymmetric_with_a_zero_diagonal(seed):
    found = margins_of(population(), frames(20, seed)).pair
    np.testing.assert_allclose(found, -found.transpose(0, 2, 1), atol=1e-12)
    assert not found[:, np.arange(len(SIZES)), np.arange(len(SIZES))].any()


# One-class machines.


@pytest.mark.parametrize("speaker", range(len(SIZES)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_class_margins_are_close_to_scikit_learns_rbf_machine(speaker, dtype):
    pool, x = population().pool, frames()
    # scikit-learn's own scale is LIBSVM's, the package's default.
    svm = OneClassSVM(kernel="rbf", gamma=1.0 / (2 * SIGMA**2), nu=NU, tol=1e-9).fit(pool.codebook(speaker))
    assert_close(margins_of(population(), x, dtype=dtype).one_class[:, speaker], svm.decision_function(x))


def one_class_machine(speaker: int, nu: float, scale: str | float) -> tuple[np.ndarray, float]:
    """Coefficients and bias of one speaker's one-class machine."""
    people = train_population(
        population().pool, MachineConfig(kinds=("one_class",), sigma=SIGMA, nu=nu, one_class_scale=scale)
    )
    return people.one_class_coef[people.pool.rows(speaker)], people.one_class_bias[speaker]


@pytest.mark.parametrize("nu", [0.05, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("speaker", range(len(SIZES)))
def test_one_class_machine_meets_the_conditions_of_an_optimum(speaker, nu):
    coef, bias = one_class_machine(speaker, nu, "libsvm")
    book = population().pool.codebook(speaker)
    margin = np.exp(-cdist(book, book, "sqeuclidean") / (2 * SIGMA**2)) @ coef + bias
    assert coef.min() >= 0.0
    assert coef.max() <= 1.0 + 1e-12
    np.testing.assert_allclose(coef.sum(), nu * len(book))
    assert (margin[coef < 1.0 - 1e-9] >= -1.01 * STOP).all()
    assert (margin[coef > 0.0] <= 1.01 * STOP).all()
    assert np.mean(margin < -1.01 * STOP) <= nu  # Schoelkopf's proposition: nu bounds the share of outliers
    assert np.mean(coef > 0.0) >= nu - 1e-12  # and is bounded by the share of support vectors


@pytest.mark.parametrize("nu", [1e-6, 0.5, 0.999, 1.0])
def test_every_nu_that_the_settings_allow_trains_to_finite_machines(nu):
    try:
        configuration = MachineConfig(kinds=("one_class",), nu=nu)
    except ValidationError:
        return  # refused before anything is trained
    found = train_population(population().pool, configuration)
    assert np.isfinite(found.one_class_coef).all()
    assert np.isfinite(found.one_class_bias).all()


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


@pytest.mark.parametrize("scale", ["schoelkopf", "libsvm", 3.0])
def test_population_uses_the_one_class_scale_of_its_settings(scale):
    configuration = MachineConfig(kinds=("one_class",), nu=NU, one_class_scale=scale)
    found = train_population(Pool.of(codebooks(), SIGMA), configuration)
    for n, size in enumerate(SIZES):
        expected = {"schoelkopf": 1.0, "libsvm": NU * size}.get(str(scale), 3.0)
        np.testing.assert_allclose(found.one_class_coef[found.pool.rows(n)].sum(), expected, rtol=1e-12)
    assert found.pairs is None
    assert found.one_vs_rest_coef is None


# One-vs-rest machines.


@pytest.mark.parametrize("speaker", range(len(SIZES)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_vs_rest_margins_are_close_to_scikit_learns_rbf_machine(speaker, dtype):
    pool, x = population().pool, frames()
    labels = np.where(pool.owner == speaker, 1, -1)
    svm = SVC(kernel="rbf", gamma=1.0 / (2 * SIGMA**2), C=COST, tol=1e-9).fit(pool.centroids, labels)
    assert_close(margins_of(population(), x, dtype=dtype).one_vs_rest[:, speaker], svm.decision_function(x))


@pytest.mark.parametrize("seed", range(3))
def test_one_vs_rest_machines_meet_the_conditions_of_an_optimum(seed):
    pool = Pool.of(codebooks(seed), SIGMA)
    gram = np.exp(-cdist(pool.centroids, pool.centroids, "sqeuclidean") / (2 * SIGMA**2))
    coef, bias = one_vs_rest(pool, SETTINGS)
    assert (coef.shape, bias.shape) == ((len(pool.centroids), len(SIZES)), (len(SIZES),))
    for speaker in range(len(SIZES)):
        assert_optimal(gram, np.where(pool.owner == speaker, 1.0, -1.0), coef[:, speaker], bias[speaker], COST)


def test_one_vs_rest_machines_that_may_hold_no_matrix_are_as_good():
    pool = population().pool
    told: list[int] = []
    coef, bias = one_vs_rest(pool, SETTINGS.model_copy(update={"gram_gib": 1e-7}), progress=told.append)
    assert sum(told) == len(SIZES)
    kernel = rbf_kernel(frames(), pool.centroids, SIGMA)
    assert_close(kernel @ coef + bias, margins_of(population(), frames()).one_vs_rest)


def test_with_two_speakers_each_rest_is_the_other_and_the_machines_are_the_pair_machine():
    people = train_population(Pool.of(codebooks()[2:4], SIGMA), SETTINGS)
    found = margins_of(people, frames())
    np.testing.assert_allclose(found.one_vs_rest[:, 0], found.pair[:, 0, 1], atol=10 * STOP)
    np.testing.assert_allclose(found.one_vs_rest[:, 1], found.pair[:, 1, 0], atol=10 * STOP)


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
@given(seed=st.integers(0, 2**32 - 1), speakers=st.integers(1, 6), data=st.data())
def test_margins_of_any_claims_are_the_sums_over_centroids_machine_by_machine(seed, speakers, data):
    people = random_population(seed, speakers)
    claims = data.draw(st.lists(st.integers(0, speakers - 1), min_size=1, unique=True))
    x = np.random.default_rng(seed).normal(0, 1, (9, 4))
    pair, one_class, one_vs_rest = literal_margins(people, x)
    found = margins_of(people, x, claims=claims)
    np.testing.assert_array_equal(found.claims, claims)
    np.testing.assert_allclose(found.pair, pair[:, claims], atol=1e-11)
    np.testing.assert_allclose(found.one_class, one_class, atol=1e-11)
    np.testing.assert_allclose(found.one_vs_rest, one_vs_rest, atol=1e-11)


@pytest.mark.parametrize("kinds", [{"one_vs_one"}, {"one_class"}, {"one_vs_rest"}, {"one_vs_one", "one_vs_rest"}])
def test_margins_of_some_kinds_are_the_same_as_among_all_kinds(kinds):
    people, x = population(), frames()
    found = MarginScorer(people, np.array([3, 1]), frozenset(kinds))(x)
    everything = margins_of(people, x, claims=[3, 1])
    for kind, name in (("one_vs_one", "pair"), ("one_class", "one_class"), ("one_vs_rest", "one_vs_rest")):
        if kind in kinds:
            np.testing.assert_allclose(getattr(found, name), getattr(everything, name), atol=1e-12)
        else:
            assert getattr(found, name) is None


@given(st.lists(st.integers(0, len(SIZES) - 1), min_size=1, unique=True))
@settings(max_examples=20, deadline=None)
def test_selected_margins_are_those_of_the_selected_claims(claims):
    everything = margins_of(population(), frames(), claims=[4, 2, 0, 1, 3])
    found = everything.select(np.array(claims))
    expected = margins_of(population(), frames(), claims=claims)
    np.testing.assert_array_equal(found.claims, claims)
    np.testing.assert_allclose(found.pair, expected.pair, atol=1e-12)
    np.testing.assert_allclose(found.one_class, expected.one_class, atol=1e-12)
    np.testing.assert_allclose(found.one_vs_rest, expected.one_vs_rest, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 70), max_size=6))
def test_margins_of_a_frame_do_not_depend_on_its_batch(ends):
    x = frames()
    whole = margins_of(population(), x)
    parts = [margins_of(population(), x[a:b]) for a, b in pairwise(sorted([0, *ends, len(x)]))]
    for name in ("pair", "one_class", "one_vs_rest"):
        found = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(found, getattr(whole, name), atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), order=st.permutations(range(5)))
def test_permuting_the_speakers_of_the_same_machines_permutes_their_margins(seed, order):
    people, order = random_population(seed, 5), list(order)
    pool = people.pool
    rows = np.concatenate([np.arange(pool.offsets[n], pool.offsets[n + 1]) for n in order])
    shuffled = Population(
        Pool.of([pool.codebook(n) for n in order], pool.sigma),
        pairs=Pairs({(i, j): people.pairs.against(order[i])[order[j]] for i in range(5) for j in range(i)}),
        one_class_coef=people.one_class_coef[rows],
        one_class_bias=people.one_class_bias[order],
        one_vs_rest_coef=people.one_vs_rest_coef[np.ix_(rows, order)],
        one_vs_rest_bias=people.one_vs_rest_bias[order],
    )
    x = np.random.default_rng(seed).normal(0, 1, (9, 4))
    plain, found = margins_of(people, x), margins_of(shuffled, x)
    np.testing.assert_allclose(found.pair, plain.pair[:, order][:, :, order], atol=1e-11)
    np.testing.assert_allclose(found.one_class, plain.one_class[:, order], atol=1e-11)
    np.testing.assert_allclose(found.one_vs_rest, plain.one_vs_rest[:, order], atol=1e-11)


@pytest.mark.parametrize("order", [[4, 3, 2, 1, 0], [2, 0, 4, 1, 3]])
def test_training_on_permuted_speakers_permutes_the_margins(order):
    books = codebooks()
    shuffled = train_population(Pool.of([books[n] for n in order], SIGMA), SETTINGS)
    plain, found = margins_of(population(), frames()), margins_of(shuffled, frames())
    np.testing.assert_allclose(found.pair, plain.pair[:, order][:, :, order], atol=10 * STOP)
    np.testing.assert_allclose(found.one_class, plain.one_class[:, order], atol=10 * STOP)
    np.testing.assert_allclose(found.one_vs_rest, plain.one_vs_rest[:, order], atol=10 * STOP)


@pytest.mark.parametrize(("dtype", "tolerance"), [("mixed", 1e-5), ("float32", 1e-3)])
def test_margins_in_less_precision_agree_with_those_in_double(dtype, tolerance):
    double, found = margins_of(population(), frames()), margins_of(population(), frames(), dtype=dtype)
    for kind in ("pair", "one_class", "one_vs_rest"):
        np.testing.assert_allclose(getattr(found, kind), getattr(double, kind), atol=tolerance, err_msg=kind)
        assert getattr(found, kind).dtype == (np.float64 if dtype == "mixed" else np.float32)


def test_features_far_from_the_origin_cost_single_precision_nothing():
    shift = 300.0
    moved = train_population(Pool.of([book + shift for book in codebooks()], SIGMA), SETTINGS)
    double = margins_of(moved, frames() + shift)
    single = margins_of(moved, frames() + shift, dtype="float32")
    np.testing.assert_allclose(single.pair, double.pair, atol=1e-3)
    assert single.pair.dtype == np.float32


def test_frames_far_from_everybody_get_the_bias_of_each_machine():
    people = population()
    found = margins_of(people, np.full((1, DIMENSION), 1e4))
    biases = [[of[j].bias if i != j else 0.0 for j in range(5)] for i in range(5) if (of := people.pairs.against(i))]
    np.testing.assert_allclose(found.pair[0], biases, atol=1e-12)
    np.testing.assert_allclose(found.one_class[0], people.one_class_bias, atol=1e-12)


# Populations that grow.


def assert_same(found: Population, expected: Population) -> None:
    np.testing.assert_array_equal(found.pool.centroids, expected.pool.centroids)
    ours, theirs = pair_arrays(found), pair_arrays(expected)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)
    for name in ("one_class_coef", "one_class_bias", "one_vs_rest_coef", "one_vs_rest_bias"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("cuts", [(1, 5), (3, 5), (2, 3, 5), (1, 2, 3, 4, 5), (5, 5)])
def test_population_grown_from_a_known_one_is_exactly_the_one_trained_from_scratch(cuts):
    grown = None
    for count in cuts:
        grown = train_population(Pool.of(codebooks()[:count], SIGMA), SETTINGS, known=grown)
    assert_same(grown, population())


@pytest.mark.parametrize("jobs", [2, 3, -1])
def test_number_of_jobs_changes_nothing(jobs):
    assert_same(train_population(Pool.of(codebooks(), SIGMA), SETTINGS, jobs=jobs), population())


@pytest.mark.parametrize("kinds", [("one_class",), ("one_class", "one_vs_one"), ("one_class", "one_vs_rest"), None])
@pytest.mark.parametrize(("first", "speakers"), [(0, 1), (0, 2), (0, 5), (1, 2), (3, 5)])
def test_machine_count_is_the_number_of_machines_trained(kinds, first, speakers):
    configuration = SETTINGS if kinds is None else MachineConfig(kinds=kinds)
    known = train_population(Pool.of(codebooks()[:first], SIGMA), configuration) if first else None
    told: list[int] = []
    train_population(Pool.of(codebooks()[:speakers], SIGMA), configuration, known=known, progress=told.append)
    literal = len(range(first, speakers))
    if "one_vs_one" in configuration.kinds:
        literal += sum(1 for own in range(speakers) for rival in range(own) if own >= first)
    if "one_vs_rest" in configuration.kinds and speakers > 1:
        literal += speakers
    assert sum(told) == machine_count(speakers, first, configuration) == literal


def test_single_speaker_has_a_one_class_machine_and_no_rivals():
    people = train_population(Pool.of(codebooks()[:1], SIGMA), SETTINGS)
    x = frames()
    assert people.one_vs_rest_coef is None
    found = MarginScorer(people, np.array([0]), KINDS)(x)
    svm = OneClassSVM(gamma=1.0 / (2 * SIGMA**2), nu=NU, tol=1e-9).fit(codebooks()[0])
    assert_close(found.one_class[:, 0], svm.decision_function(x))
    np.testing.assert_array_equal(found.pair, np.zeros((len(x), 1, 1)))
    assert found.one_vs_rest is None


def test_no_frames_give_no_margins():
    found = margins_of(population(), np.empty((0, DIMENSION)), claims=[1, 2])
    assert (found.pair.shape, found.one_class.shape, found.one_vs_rest.shape) == ((0, 2, 5), (0, 5), (0, 5))


def test_speakers_with_the_same_codebook_get_finite_machines():
    book = codebooks()[0]
    found = margins_of(train_population(Pool.of([book, book.copy()], SIGMA), SETTINGS), frames())
    np.testing.assert_allclose(found.pair, 0.0, atol=10 * STOP)
    assert np.isfinite(found.one_class).all()


# Codebooks.


def spread(vectors: np.ndarray, centroids: np.ndarray) -> float:
    """Sum of squared distances to the nearest centroid."""
    return float(cdist(vectors, centroids, "sqeuclidean").min(axis=1).sum())


def test_same_vectors_and_seed_give_the_same_codebook_and_another_seed_another():
    vectors = np.random.default_rng(0).standard_normal((600, 8))
    first = fit_codebook(vectors, CodebookConfig(centroids=20), seed=3)
    np.testing.assert_array_equal(first, fit_codebook(vectors.copy(), CodebookConfig(centroids=20), seed=3))
    assert not np.array_equal(first, fit_codebook(vectors, CodebookConfig(centroids=20), seed=4))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), centroids=st.integers(1, 30))
def test_codebook_is_finite_and_no_worse_than_scikit_learns_run_to_its_own_end(seed, centroids):
    vectors = np.random.default_rng(seed).standard_normal((200, 5))
    found = fit_codebook(vectors, CodebookConfig(centroids=centroids), seed=7)
    reference = KMeans(centroids, n_init=1, random_state=7).fit(vectors)
    assert found.shape == (centroids, 5)
    assert np.isfinite(found).all()
    assert spread(vectors, found) <= reference.inertia_ * (1 + 1e-3)


def test_codebook_is_as_good_as_scipys_best_of_several():
    vectors = np.random.default_rng(1).standard_normal((500, 4))
    found = spread(vectors, fit_codebook(vectors, CodebookConfig(centroids=16), seed=0))
    others = [spread(vectors, kmeans2(vectors, 16, minit="++", rng=seed)[0]) for seed in range(10)]
    assert found < 1.05 * min(others)


def test_codebook_of_far_apart_clusters_is_their_means():
    generator = np.random.default_rng(2)
    places = 1e3 * generator.standard_normal((12, 6))
    clusters = [place + 0.01 * generator.standard_normal((size, 6)) for size, place in enumerate(places, start=2)]
    found = fit_codebook(np.concatenate(clusters), CodebookConfig(centroids=12), seed=0)
    means = np.array([cluster.mean(axis=0) for cluster in clusters])
    nearest = cdist(means, found)
    assert sorted(nearest.argmin(axis=1)) == list(range(12))
    assert nearest.min(axis=1).max() < 1e-9


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), distinct=st.integers(1, 12), repeats=st.integers(1, 5))
def test_few_distinct_vectors_are_all_kept(seed, distinct, repeats):
    vectors = np.random.default_rng(seed).standard_normal((distinct, 3))
    found = fit_codebook(np.repeat(vectors, repeats, axis=0), CodebookConfig(centroids=12), seed=0)
    np.testing.assert_array_equal(found, np.unique(vectors, axis=0))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_vectors_that_repeat_often_make_no_duplicate_or_empty_centroids(seed):
    grid = np.random.default_rng(seed).integers(0, 3, (300, 3)).astype(float)
    found = fit_codebook(grid, CodebookConfig(centroids=20), seed=0)
    assert np.isfinite(found).all()
    assert len(np.unique(found, axis=0)) == len(found) == 20


def test_nearly_equal_vectors_count_once_and_nobody_is_warned():
    rng = np.random.default_rng(0)
    sounds = rng.standard_normal((5, 4))
    vectors = np.repeat(sounds, 50, axis=0) + 1e-9 * rng.standard_normal((250, 4))
    book = fit_codebook(vectors, CodebookConfig(centroids=20), seed=0)
    np.testing.assert_allclose(book[np.argsort(book[:, 0])], sounds[np.argsort(sounds[:, 0])], atol=1e-6)


def test_pair_machines_that_a_known_population_has_none_of_are_not_made_up():
    pool = population().pool
    alone = train_population(Pool.of([pool.codebook(0)], SIGMA), MachineConfig(kinds=("one_class",)))
    with pytest.raises(ValueError, match="from scratch"):
        train_population(Pool.of([pool.codebook(0), pool.codebook(1)], SIGMA), MachineConfig(), known=alone)
