"""Running scores of small trained populations against literal loops, and thresholds from held-out trials."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal

from pipeline.config import MachineConfig
from pipeline.errors import MetricError
from pipeline.features.stream import FeatureBlock
from pipeline.machines.gmm import AdaptedMixtures, MapAdaptation
from pipeline.machines.margins import Population
from pipeline.machines.pool import Pool
from pipeline.machines.supervectors import SupervectorTraining
from pipeline.machines.training import train_population
from pipeline.machines.ubm import UniversalBackgroundModel, train_ubm
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring.calibration import LogisticCalibration
from pipeline.scoring.claims import ClaimScorer, ScoringSettings
from pipeline.scoring.rules import RULES
from pipeline.scoring.trials import HeldOutTrials

SYSTEMS = tuple(RULES)
SPEAKERS = 4
DIMENSION = 5
SEEDS = st.integers(0, 2**32 - 1)
HALF_DB = 20.0
# Not those that a fit would give: what matters here is that they are followed.
FUSION = LogisticCalibration(
    ("supervector_rival", "supervector", "worst_rival"),
    np.array([2.0, 0.7, 0.4]),
    offset=-1.3,
    duration=0.6,
    usual_frames=150.0,
)


@cache
def population(speakers: int = SPEAKERS) -> Population:
    generator = np.random.default_rng(0)
    books = [generator.normal(0.3 * n, 0.4, (9 + 3 * n, DIMENSION)) for n in range(speakers)]
    people = train_population(Pool.of(books, 0.5), MachineConfig(sigma=0.5, nu=0.2))
    spoken = [[near(book, seed).vectors for seed in range(4)] for book in books]
    space = train_ubm(np.concatenate([x for parts in spoken for x in parts]), components=8, relevance=2.0, seed=0)
    vectors = [
        np.stack([space.vector(space.statistics(x, np.ones(len(x)))) for x in parts]).astype(np.float32)
        for parts in spoken
    ]
    adapted = MapAdaptation.of(space.means, groups=(2,), relevance=2.0, group_relevance=4.0)
    said = [np.concatenate(parts) for parts in spoken]
    shifts = np.stack([adapted.mean_offsets(space.statistics(x, np.ones(len(x)))) for x in said])
    machines = SupervectorTraining(vectors, ridge=1.0).machines(space)
    return replace(people, supervectors=machines.with_models(AdaptedMixtures(shifts)))


def block_of(vectors: np.ndarray, below_peak: np.ndarray | None = None) -> FeatureBlock:
    return FeatureBlock(vectors, len(vectors), np.zeros(len(vectors)) if below_peak is None else below_peak)


def speech(frames: int, seed: int = 1) -> FeatureBlock:
    """Speech of nobody in particular, some of it loud."""
    generator = np.random.default_rng(seed)
    return block_of(generator.normal(0.4, 0.5, (frames, DIMENSION)), generator.uniform(0.0, 40.0, frames))


def near(book: np.ndarray, seed: int) -> FeatureBlock:
    """Loud speech close to the centroids of ``book``."""
    frames = np.repeat(book, 4, axis=0)
    return block_of(frames + 0.1 * np.random.default_rng(seed).standard_normal(frames.shape))


def scorer(
    claims: list[int], systems: tuple[str, ...] = SYSTEMS, *, speakers: int = SPEAKERS, dtype: str = "float64"
) -> ClaimScorer:
    scoring = ScoringSettings(FixedSigmoid(), dtype=dtype, half_db=HALF_DB, fusions={"fused": FUSION})
    return ClaimScorer(population(speakers), claims, systems, scoring)


def scores(made: ClaimScorer, *blocks: FeatureBlock) -> dict[str, np.ndarray]:
    running = made.start()
    for block in blocks:
        running.push(block)
    return running.scores()


def assert_equal_scores(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, values in found.items():
        np.testing.assert_allclose(values, expected[name], atol=tolerance, rtol=0, err_msg=name)


# The scores themselves, written out claim by claim and frame by frame.


def literal_shares(space: UniversalBackgroundModel, speech: FeatureBlock) -> list[tuple[np.ndarray, list[float]]]:
    """Each standardised frame, and its share in every component times its loudness, from Gaussian densities."""
    found = []
    for vector, below in zip(speech.vectors, speech.below_peak, strict=True):
        x = (vector - space.centre) / space.scale
        density = [
            weight * multivariate_normal(mean, np.diag(variances)).pdf(x)
            for weight, mean, variances in zip(space.weights, space.means, space.variances, strict=True)
        ]
        loudness = 1 / (1 + math.exp((below - HALF_DB) / 3))
        found.append((x, [one / sum(density) * loudness for one in density]))
    return found


def literal_model_scores(people: Population, speech: FeatureBlock) -> list[float]:
    """Mean log-likelihood ratio of every speaker's model, from densities with the mean moved and not."""
    space, found = people.supervectors.space, []
    for shifts in people.supervectors.models.offsets.astype(float):
        total, heard = 0.0, 0.0
        for x, shares in literal_shares(space, speech):
            for k, share in enumerate(shares):
                spread = np.sqrt(space.variances[k])
                moved = multivariate_normal(space.means[k] + shifts[k] * spread, np.diag(space.variances[k])).logpdf(x)
                total += share * (moved - multivariate_normal(space.means[k], np.diag(space.variances[k])).logpdf(x))
            heard += sum(shares)
        found.append(total / heard)
    return found


def literal_segment_margins(people: Population, speech: FeatureBlock) -> list[float]:
    """Segment margin of every speaker, from sums of one frame after the other."""
    machines, space = people.supervectors, people.supervectors.space
    components = range(len(space.weights))
    heard = [0.0 for _ in components]
    offset = [np.zeros(DIMENSION) for _ in components]
    for x, shares in literal_shares(space, speech):
        for k in components:
            heard[k] += shares[k]
            offset[k] += shares[k] * (x - space.means[k]) / np.sqrt(space.variances[k])
    vector = np.concatenate([offset[k] / (heard[k] + space.relevance) for k in components]) - machines.mean
    return [float(vector @ column) / math.sqrt(vector @ vector) for column in machines.coef.T]


def literal_scores(people: Population, speech: FeatureBlock, claim: int) -> dict[str, float]:
    """Every system for one claim, from the coefficients of each machine, one frame at a time."""
    pool, everybody = people.pool, range(len(people))
    kernel = np.exp(-cdist(speech.vectors, pool.centroids, "sqeuclidean") / (2 * pool.sigma**2))

    def s(z: float) -> float:
        return 1 / (1 + math.exp(-z))

    def pair(k: np.ndarray, i: int, j: int) -> float:
        machine = people.pairs.against(i)[j]
        return k[pool.rows(i)] @ machine.own - k[pool.rows(j)] @ machine.rival + machine.bias

    frames: dict[str, list[float]] = {name: [] for name in ("boar", "poar", "boao", "poao", "rpoao")}
    rivals: dict[tuple[str, int], list[float]] = {}
    for k in kernel:
        h = [float(k @ people.one_vs_rest_coef[:, n] + people.one_vs_rest_bias[n]) for n in everybody]
        q = [s(k[pool.rows(n)] @ people.one_class_coef[pool.rows(n)] + people.one_class_bias[n]) for n in everybody]
        f = [[pair(k, i, j) if i != j else 0.0 for j in everybody] for i in everybody]
        r = [[s(f[i][j]) if i != j else 0.0 for j in everybody] for i in everybody]
        refined = [[r[i][j] * (q[i] + q[j]) for j in everybody] for i in everybody]
        won = [sum(f[i][j] > 0 for j in everybody if j != i) for i in everybody]
        best = max(everybody, key=lambda i: (won[i], sum(r[i])))
        frames["boar"].append(float(h[claim] > 0))
        frames["poar"].append(math.log(s(h[claim]) / sum(s(one) for one in h)))
        frames["boao"].append(float(best == claim))
        frames["poao"].append(math.log(sum(r[claim]) / sum(map(sum, r))))
        frames["rpoao"].append(math.log(sum(refined[claim]) / sum(map(sum, refined))))
        for j in everybody:
            if j != claim:
                rivals.setdefault(("worst_rival", j), []).append(r[claim][j])
                rivals.setdefault(("refined_worst_rival", j), []).append(refined[claim][j])
    found = {name: math.fsum(values) / len(values) for name, values in frames.items()}
    for name in ("worst_rival", "refined_worst_rival"):
        found[name] = min(math.fsum(v) / len(v) for (system, _), v in rivals.items() if system == name)
    margins = literal_segment_margins(people, speech)
    found["supervector"] = margins[claim]
    found["supervector_rival"] = margins[claim] - max(margins[j] for j in everybody if j != claim)
    models = literal_model_scores(people, speech)
    others = [models[j] for j in everybody if j != claim]
    found["gmm"] = models[claim] - sum(others) / len(others)
    found["gmm_rival"] = models[claim] - max(others)
    won = found["worst_rival"]
    found["fused"] = (
        -1.3
        + 0.6 * math.log(len(speech.vectors) / 150)
        + 2.0 * found["supervector_rival"]
        + 0.7 * found["supervector"]
        + 0.4 * math.log(won / (1 - won))
    )
    return found


@pytest.mark.parametrize("speakers", [2, 3, SPEAKERS])
def test_scores_are_the_systems_written_out_frame_by_frame(speakers):
    x = speech(40)
    found = scores(scorer(list(range(speakers)), speakers=speakers), x)
    assert set(found) == set(SYSTEMS)
    for claim in range(speakers):
        expected = literal_scores(population(speakers), x, claim)
        assert set(expected) == set(SYSTEMS)
        for name, value in expected.items():
            exact = not (RULES[name].whole or RULES[name].parts)
            # What is said of whole segments is summed in single precision.
            assert found[name][claim] == pytest.approx(value, abs=1e-9 if exact else 1e-6), name


def test_claims_on_the_true_speaker_score_highest_under_every_system():
    for speaker in range(SPEAKERS):
        spoken = near(population().pool.codebook(speaker), 10 + speaker)
        for name, values in scores(scorer(list(range(SPEAKERS))), spoken).items():
            assert values.argmax() == speaker, name


# One pass, any chunks, any claims.


@pytest.mark.parametrize("dtype", ["float64", "mixed"])
@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 300), max_size=8), seed=SEEDS)
def test_any_chunking_of_the_frames_gives_the_same_scores(dtype, sizes, seed):
    x = speech(700, seed)
    ends = np.minimum(np.cumsum([0, *sizes]), 700)
    chunks = [x.part(slice(a, b)) for a, b in zip(ends, [*ends[1:], 700], strict=True)]
    made = scorer([2, 0], dtype=dtype)
    assert_equal_scores(scores(made, *chunks), scores(made, x), 1e-9)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_scores_after_every_push_are_those_of_the_frames_so_far(seed):
    x, made = speech(60, seed), scorer([1])
    running = made.start()
    for start in range(0, 60, 7):
        running.push(x.part(slice(start, start + 7)))
        assert running.frames == min(60, start + 7)
        assert_equal_scores(running.scores(), scores(made, x.part(slice(start + 7))), 1e-9)


def test_utterances_of_one_scorer_do_not_mix():
    made, first, second = scorer([0, 3]), speech(50, 1), speech(80, 2)
    one, other = made.start(), made.start()
    for start in range(0, 80, 20):
        one.push(first.part(slice(start, start + 20)))
        other.push(second.part(slice(start, start + 20)))
    assert_equal_scores(one.scores(), scores(made, first), 1e-9)
    assert_equal_scores(other.scores(), scores(made, second), 1e-9)


def test_order_of_the_frames_does_not_matter():
    x, made = speech(90), scorer([0, 1, 2, 3])
    assert_equal_scores(scores(made, x.part(slice(None, None, -1))), scores(made, x), 1e-9)


@settings(max_examples=20, deadline=None)
@given(
    claims=st.lists(st.integers(0, SPEAKERS - 1), min_size=1, unique=True),
    systems=st.lists(st.sampled_from(SYSTEMS), min_size=1, unique=True),
)
def test_claims_scored_together_score_as_they_do_alone(claims, systems):
    x = speech(50)
    together = scores(scorer(claims, tuple(systems)), x)
    assert tuple(together) == tuple(systems)
    for slot, claim in enumerate(claims):
        for name in systems:
            alone = scores(scorer([claim], (name,)), x)
            np.testing.assert_allclose(together[name][slot], alone[name][0], atol=1e-12)


@pytest.mark.parametrize("claim", range(SPEAKERS))
def test_boao_of_one_claim_is_its_share_in_the_run_over_all_claims(claim):
    x = speech(120)
    everybody = scores(scorer(list(range(SPEAKERS)), ("boao",)), x)["boao"]
    assert everybody.sum() == pytest.approx(1.0)
    assert scores(scorer([claim], ("boao",)), x)["boao"] == pytest.approx(everybody[claim])
    with_others = scores(scorer([claim], ("worst_rival", "boao", "poar")), x)
    assert with_others["boao"] == pytest.approx(everybody[claim])


@pytest.mark.parametrize("name", SYSTEMS)
def test_claim_named_twice_scores_the_same_twice(name):
    found = scores(scorer([2, 0, 2], (name,)), speech(50))[name]
    np.testing.assert_allclose(found[0], found[2], atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_scores_in_less_precision_are_close_to_those_in_double(seed):
    x, everybody = speech(80, seed), list(range(SPEAKERS))
    double = scores(scorer(everybody), x)
    for dtype, tolerance in (("mixed", 1e-6), ("float32", 1e-4)):
        for name, values in scores(scorer(everybody, dtype=dtype), x).items():
            # A counted frame whose margin rounds to the other side of zero moves a share by one frame.
            allowed = tolerance if not RULES[name].binary else 1 / 80 + tolerance
            np.testing.assert_allclose(values, double[name], atol=allowed, err_msg=f"{name}, {dtype}")


def test_size_of_the_blocks_that_frames_are_scored_in_changes_nothing():
    x, made = speech(200), scorer([0, 1, 2, 3])
    whole = scores(made, x)
    made.block = 1
    assert_equal_scores(scores(made, x), whole, 1e-9)


# Systems that sum others.


@pytest.mark.parametrize("asked", [("fused",), ("poao", "fused"), ("worst_rival", "fused", "supervector")])
def test_sum_of_systems_is_the_calibration_of_their_scores_whether_they_are_asked_for_or_not(asked):
    x, everybody = speech(120), list(range(SPEAKERS))
    found = scores(scorer(everybody, asked), x)
    assert tuple(found) == asked
    parts = scores(scorer(everybody, FUSION.systems), x)
    np.testing.assert_allclose(found["fused"], FUSION.llr(parts, 120), atol=1e-12)


def test_sum_of_systems_without_a_calibration_has_no_score():
    made = ClaimScorer(population(), [0, 1], ("fused", "supervector"), ScoringSettings(FixedSigmoid()))
    assert set(scores(made, speech(50))) == {"supervector"}


def test_sum_of_systems_asks_a_population_for_the_machines_of_its_calibration_alone():
    people = population()
    without = replace(people, supervectors=people.supervectors.with_models(None))
    settings_ = ScoringSettings(FixedSigmoid(), half_db=HALF_DB, fusions={"fused": FUSION})
    found, expected = (scores(ClaimScorer(one, [0, 1], ("fused",), settings_), speech(50)) for one in (without, people))
    np.testing.assert_array_equal(found["fused"], expected["fused"])


def test_quiet_frames_hardly_matter_to_segments_and_fully_to_the_frame_rules():
    loud, noise = speech(60, 1), speech(60, 2)
    quiet = block_of(noise.vectors, np.full(60, HALF_DB + 60.0))
    made = scorer([0, 1])
    before, after = scores(made, block_of(loud.vectors)), scores(made, block_of(loud.vectors), quiet)
    np.testing.assert_allclose(after["supervector"], before["supervector"], atol=1e-6)
    assert np.abs(after["worst_rival"] - before["worst_rival"]).max() > 1e-3


# Small populations.


def test_alone_every_system_reads_the_one_class_machine():
    people, x = population(1), speech(60)
    kernel = np.exp(-cdist(x.vectors, people.pool.centroids, "sqeuclidean") / (2 * 0.5**2))
    f = kernel @ people.one_class_coef + people.one_class_bias[0]
    q = 1 / (1 + np.exp(-f))
    assert 0 < np.mean(f > 0) < 1
    expected = {"mean": q.mean(), "log": np.log(q).mean()}
    for name, values in scores(scorer([0], speakers=1), x).items():
        assert values == pytest.approx([expected[RULES[name].alone]], abs=1e-12), name


@pytest.mark.parametrize("speakers", [1, 2, 3])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("mixed", 1e-9), ("float32", 1e-6)])
def test_small_populations_give_one_finite_score_a_claim_in_any_chunks(speakers, dtype, tolerance):
    x, everybody = speech(60), list(range(speakers))
    made = scorer(everybody, speakers=speakers, dtype=dtype)
    found = scores(made, x)
    for values in found.values():
        assert values.shape == (speakers,)
        assert np.isfinite(values).all()
    chunks = [x.part(slice(a, b)) for a, b in ((0, 1), (1, 1), (1, 31), (31, 60))]
    assert_equal_scores(scores(made, *chunks), found, tolerance)


def test_scores_of_two_speakers_mirror_each_other():
    found = scores(scorer([0, 1], speakers=2), speech(60))
    for name in ("boao", "worst_rival"):
        assert found[name].sum() == pytest.approx(1.0)


def test_nothing_is_scored_before_the_first_frame():
    running = scorer([0]).start()
    running.push(block_of(np.empty((0, DIMENSION))))
    assert running.frames == 0
    with pytest.raises(ValueError, match="no frame"):
        running.scores()


# Held-out trials.


def trials(
    target: list[float], nontarget: list[float], *, population: int = 10, system: str = "poao", first: int = 0
) -> HeldOutTrials:
    """True claims with the scores ``target``, and false ones; speakers are numbered from ``first``."""
    speakers = np.arange(first, first + len(target) + len(nontarget), dtype=np.uint64)
    claims = speakers.copy()
    claims[len(target) :] += np.uint64(1)
    return HeldOutTrials(
        claims=claims,
        speakers=speakers,
        population=np.full(len(speakers), population),
        scores={system: np.array([*target, *nontarget], dtype=float)},
        frames=np.arange(100, 100 + len(speakers)),
        unknown=np.zeros(len(speakers), dtype=bool),
    )


@pytest.mark.parametrize(
    ("target", "nontarget", "expected"),
    [
        ([2.0, 3.0], [0.0, 1.0], 1.5),  # perfect separation: the middle of the gap
        ([1.0, 3.0], [0.0, 2.0], 1.5),  # one of two wrong on each side between 1 and 2
        ([0.5, 4.0, 5.0, 6.0], [-3.0, -2.0, -1.0, 2.0], 1.25),  # one of four wrong on each side
        ([5.0], [5.0], 5.0),  # a tie cannot be parted
        ([-1.0, -3.0], [-4.0, -2.0], -2.5),
    ],
)
def test_threshold_is_that_of_the_equal_error_rate_worked_by_hand(target, nontarget, expected):
    assert trials(target, nontarget).threshold("poao", population=10) == expected


@settings(max_examples=60, deadline=None)
@given(
    nontarget=st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=30),
    rate=st.sampled_from((0.0, 0.01, 0.1, 0.5, 1.0)),
)
def test_false_accept_rate_is_kept_and_no_lower_threshold_keeps_it(nontarget, rate):
    found = trials([9.0], nontarget).threshold("poao", population=10, false_accept=rate)
    scored = np.array(nontarget)
    assert np.mean(scored >= found) <= rate
    below = np.unique(scored[scored < found])
    if below.size:
        assert np.mean(scored >= below[-1]) > rate


def test_without_false_claims_the_threshold_accepts_every_held_out_utterance():
    made = trials([0.3, 0.1, 0.7], [], population=1, system="alone.log")
    assert made.threshold("poao", population=1) == 0.1


def test_false_accept_rate_without_false_claims_is_an_error():
    with pytest.raises(MetricError, match="other speakers"):
        trials([0.3], [], population=1, system="alone.log").threshold("poao", population=1, false_accept=0.01)


def test_false_accept_rate_needs_no_true_claims_but_the_equal_error_rate_does():
    made = trials([], [0.0, 1.0])
    assert made.threshold("poao", population=10, false_accept=0.5) > 0.0
    with pytest.raises(MetricError):
        made.threshold("poao", population=10)


def test_no_trials_at_all_are_an_error_and_not_a_threshold():
    for rate in (None, 0.1):
        with pytest.raises(MetricError):
            trials([], []).threshold("poao", population=3, false_accept=rate)


def test_system_without_held_out_scores_is_an_error_that_names_it():
    with pytest.raises(MetricError, match="'boar'"):
        trials([1.0], [0.0]).threshold("boar", population=10)


@pytest.mark.parametrize("rate", [-0.1, 1.5])
def test_false_accept_rate_outside_zero_and_one_is_an_error(rate):
    with pytest.raises(MetricError):
        trials([1.0], [0.0]).threshold("poao", population=10, false_accept=rate)


def test_later_trials_follow_the_earlier_ones():
    both = HeldOutTrials.joined([trials([1.0, 2.0], [0.0]), trials([3.0], [-1.0, -2.0], population=20, first=50)])
    assert len(both) == 6
    np.testing.assert_array_equal(both.scores["poao"], [1, 2, 0, 3, -1, -2])
    np.testing.assert_array_equal(both.speakers, [0, 1, 2, 50, 51, 52])
    np.testing.assert_array_equal(both.claims, [0, 1, 3, 50, 52, 53])
    np.testing.assert_array_equal(both.population, [10, 10, 10, 20, 20, 20])
    np.testing.assert_array_equal(both.frames, [100, 101, 102, 100, 101, 102])
    assert len(both.unknown) == 6


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20), st.integers(0, 5))
def test_trials_without_a_speaker_hold_neither_their_claims_nor_their_voice(pairs, speaker):
    # Ids fill 64 bits.
    shift = 2**64 - 6
    made = HeldOutTrials(
        claims=np.array([claim + shift for claim, _ in pairs], dtype=np.uint64),
        speakers=np.array([voice + shift for _, voice in pairs], dtype=np.uint64),
        population=np.full(len(pairs), 5),
        scores={"poao": np.arange(len(pairs), dtype=float)},
        frames=200 + np.arange(len(pairs)),
        unknown=np.arange(len(pairs)) % 2 == 1,
    )
    found = made.without(speaker + shift)
    kept = [n for n, pair in enumerate(pairs) if speaker not in pair]
    np.testing.assert_array_equal(found.scores["poao"], kept)
    assert [int(claim) - shift for claim in found.claims] == [pairs[n][0] for n in kept]
    assert [int(voice) - shift for voice in found.speakers] == [pairs[n][1] for n in kept]
    np.testing.assert_array_equal(found.frames, [200 + n for n in kept])
    np.testing.assert_array_equal(found.unknown, [n % 2 == 1 for n in kept])
    assert len(found) == len(found.population) == len(kept)


@pytest.mark.parametrize(
    ("sizes", "population", "kept"),
    [
        ((10, 10), 10, (10, 10)),
        ((4, 10), 10, (10,)),  # fewer than half
        ((5, 10), 10, (5, 10)),  # exactly half
        ((2, 3), 100, (2, 3)),  # nothing better there
        ((1, 2), 2, (2,)),  # one speaker has no rivals: another unit
        ((1, 1), 2, (1, 1)),
        ((1,), 1, (1,)),
        ((30, 2), 4, (30, 2)),  # speakers have been removed
    ],
)
def test_comparable_trials_are_those_of_at_least_half_the_population(sizes, population, kept):
    made = HeldOutTrials(
        claims=np.arange(len(sizes), dtype=np.uint64),
        speakers=np.arange(len(sizes), dtype=np.uint64),
        population=np.array(sizes),
        scores={"poao": np.zeros(len(sizes))},
        frames=np.full(len(sizes), 200),
        unknown=np.zeros(len(sizes), dtype=bool),
    )
    np.testing.assert_array_equal(made.comparable(population).population, kept)


def test_threshold_leaves_out_trials_of_a_much_smaller_population():
    old = trials([-50.0, -60.0], [-70.0, -80.0], population=2)
    new = trials([2.0, 3.0], [0.0, 1.0], population=12, first=10)
    assert HeldOutTrials.joined([old, new]).threshold("poao", population=12) == 1.5
    assert old.threshold("poao", population=2) == -65.0


@pytest.mark.parametrize("now", [3, 12, 40])
def test_threshold_of_a_log_posterior_moves_with_chance_and_others_stay(now):
    for system, expected in (("poao", 1.5 + np.log(12 / now)), ("worst_rival", 1.5)):
        made = trials([2.0, 3.0], [0.0, 1.0], population=12, system=system)
        np.testing.assert_allclose(made.threshold(system, population=now), expected, rtol=1e-12)


@pytest.mark.parametrize("system", ["boar", "boao"])
def test_a_claim_that_no_frame_supports_is_below_every_threshold(system):
    assert trials([0.0, 0.0], [0.0, 0.0], system=system).threshold(system, population=10) > 0.0
