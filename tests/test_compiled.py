"""Compiled code against exact numbers, and against the same in numpy, which other tests hold against outside truths."""

from __future__ import annotations

import ast
import shutil
import struct
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import SMALL, codebooks, pool_of

import pipeline
from pipeline import compiling, fingerprint
from pipeline.config import load_config
from pipeline.errors import AudioError
from pipeline.features import frame_kernels, lpc
from pipeline.features.stream import FeatureBlock, FeatureStream
from pipeline.fingerprint import FingerprintStream, ReplayDetector, fingerprint_of
from pipeline.machines import tile_kernels
from pipeline.machines.assembly import train_population
from pipeline.machines.pool import Precision
from pipeline.machines.population import MarginScorer, Population
from pipeline.machines.segments import SegmentMachines, SegmentSpace
from pipeline.panel_scoring import scorer_among
from pipeline.posteriors.coupling import RULES
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring import ScoringSettings
from pipeline.store import SpeakerStore
from pipeline.verification import Verifier

PACKAGE = Path(pipeline.__file__).parent
SPEAKERS = 7
KINDS = frozenset({"one_vs_one", "one_class", "one_vs_rest"})
SEEDS = st.integers(0, 2**32 - 1)
SIGNALLING = (0x7FF0_0000_0000_0001).to_bytes(8, "little")
"""A NaN that numpy warns of wherever it is looked at."""


# Linear prediction: the same bits.


@given(seed=SEEDS, frames=st.integers(1, 40), order=st.integers(1, 24), count=st.integers(1, 40))
@settings(deadline=None)
def test_the_recursions_give_the_bits_of_numpys(seed, frames, order, count):
    random = np.random.default_rng(seed)
    loudness = random.choice([0.0, 1e-12, 1e-3, 1.0, 1e6], size=(frames, 1))
    r = lpc.autocorrelate(loudness * random.standard_normal((frames, 2 * order + 3)), order)
    plain, compiled = lpc.levinson_durbin(r), lpc.levinson_durbin(r, compiled=True)
    np.testing.assert_array_equal(compiled.coefficients, plain.coefficients)
    np.testing.assert_array_equal(compiled.reflection, plain.reflection)
    np.testing.assert_array_equal(compiled.energy, plain.energy)
    for asked in (count, None):
        cepstrum = lpc.cepstrum(plain.coefficients, asked, compiled=True)
        np.testing.assert_array_equal(cepstrum, lpc.cepstrum(plain.coefficients, asked))


def test_rows_that_do_not_lie_side_by_side_are_read_right():
    r = lpc.autocorrelate(np.random.default_rng(0).standard_normal((12, 50)), 6)
    expected = lpc.levinson_durbin(r[::3]).coefficients
    np.testing.assert_array_equal(lpc.levinson_durbin(r[::3], compiled=True).coefficients, expected)
    wide = np.repeat(expected, 2, axis=1)[:, ::2]
    np.testing.assert_array_equal(lpc.cepstrum(wide, compiled=True), lpc.cepstrum(expected))


@pytest.mark.parametrize("kind", ["lpc", "lpcc", "plp", "lsf", "reflection", "lar", "mfcc"])
@pytest.mark.parametrize("size", [160, 1000])
def test_features_are_the_same_to_rounding_and_the_same_bits_however_they_are_cut(kind, size):
    found = load_config(None, [f"features.kind={kind}", "features.order=12"]).features
    samples = 0.1 * np.random.default_rng(1).standard_normal(9000)
    plain, whole = (FeatureStream(found, compiled=compiled).push(samples).vectors for compiled in (False, True))
    stream = FeatureStream(found, compiled=True)
    cut = [stream.push(samples[at : at + size]).vectors for at in range(0, len(samples), size)]
    np.testing.assert_allclose(whole, plain, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(np.concatenate(cut), whole)
    assert len(whole) > 20


@given(seed=SEEDS, frames=st.integers(0, 9), step=st.integers(1, 90), length=st.integers(1, 120))
@settings(deadline=None)
def test_frames_are_windowed_without_their_mean_and_have_their_variance(seed, frames, step, length):
    random = np.random.default_rng(seed)
    samples, window = 5.0 + random.standard_normal(step * frames + length), random.uniform(0.1, 1.0, length)
    variances = np.empty(frames)
    numbers = np.sort(random.permutation(frames)[: random.integers(0, frames + 1)])
    found = np.empty((len(numbers), length))
    frame_kernels.windowed(samples, step, numbers, window, found)
    frame_kernels.variances(samples, step, length, variances)
    for t in range(frames):
        frame = samples[t * step : t * step + length]
        assert variances[t] == pytest.approx(frame.var(), abs=1e-12)
        if t in numbers:
            at = int(np.flatnonzero(numbers == t)[0])
            np.testing.assert_allclose(found[at], (frame - frame.mean()) * window, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, 2.0**32 + 1, struct.unpack("<d", SIGNALLING)[0]])
@pytest.mark.parametrize("place", [0, 7, 159])
def test_a_compiled_stream_refuses_what_is_no_sample_without_a_warning(copied, bad, place):
    stream = Verifier(SpeakerStore.open(copied), "anna", compiled=True).stream()
    samples = np.full(160, 2.0**28)
    stream.push(samples)
    samples[place] = bad
    if np.isnan(bad):
        samples.view(np.uint64)[place] = int.from_bytes(SIGNALLING, "little")
    with pytest.raises(AudioError, match=f"frame {160 + place}"):
        stream.push(samples)


# Stretches of speech.


def space_of(random: np.random.Generator, components: int, features: int) -> SegmentSpace:
    return SegmentSpace(
        centre=random.standard_normal(features),
        scale=random.uniform(0.5, 2.0, features),
        means=random.standard_normal((components, features)),
        variances=random.uniform(0.1, 2.0, (components, features)),
        weights=random.dirichlet(np.full(components, 2.0)),
        relevance=3.0,
    )


@given(seed=SEEDS, frames=st.integers(0, 30), components=st.integers(1, 40), features=st.integers(1, 45))
@settings(deadline=None)
def test_statistics_of_stretches_are_numpys(seed, frames, components, features):
    random = np.random.default_rng(seed)
    space = space_of(random, components, features)
    x, weights = 1.5 * random.standard_normal((frames, features)), random.uniform(0.0, 1.0, frames)
    x[::5] *= 100.0  # far from every sound
    expected = space.statistics(x, weights)
    found = space.statistics(x, weights, compiled=True)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(expected).max()))
    parts = [space.statistics(x[a:b], weights[a:b], compiled=True) for a, b in pairwise([0, frames // 3, frames])]
    np.testing.assert_allclose(sum(parts), found, rtol=1e-9, atol=1e-9)


@given(seed=SEEDS, speakers=st.integers(1, 6))
@settings(deadline=None)
def test_margins_of_stretches_are_numpys(seed, speakers):
    random = np.random.default_rng(seed)
    space = space_of(random, 9, 5)
    machines = SegmentMachines(space, random.standard_normal(45), random.standard_normal((45, speakers)))
    statistics = space.statistics(random.standard_normal((20, 5)), np.ones(20))
    np.testing.assert_allclose(machines.margins(statistics, compiled=True), machines.margins(statistics), atol=1e-6)


def test_a_stretch_that_is_the_mean_of_all_has_margins_of_nothing():
    random = np.random.default_rng(0)
    space = space_of(random, 4, 3)
    statistics = space.statistics(random.standard_normal((5, 3)), np.ones(5))
    machines = SegmentMachines(space, space.vector(statistics), np.ones((12, 2)))
    np.testing.assert_allclose(machines.margins(statistics, compiled=True), 0.0, atol=1e-3)


# Fingerprints.


@given(seed=SEEDS, sizes=st.lists(st.integers(0, 6000), min_size=1, max_size=8).filter(any))
@settings(deadline=None, max_examples=30)
def test_fingerprints_are_numpys(seed, sizes):
    random, streams = np.random.default_rng(seed), [FingerprintStream(16_000, compiled=c) for c in (False, True)]
    samples, found, at = random.standard_normal(9000) * random.choice([1e-3, 1.0]), ([], []), 0
    samples[3000:5000] = 0.0
    for n in range(2 + len(sizes)):
        size = sizes[n % len(sizes)]
        for parts, stream in zip(found, streams, strict=True):
            parts.append(stream.push(samples[at : at + size]))
        at += size
    (plain, levels), (compiled, same) = (tuple(map(np.concatenate, zip(*part, strict=True))) for part in found)
    assert np.bitwise_count(plain ^ compiled).sum() <= 1  # a level on the edge may round either way
    np.testing.assert_allclose(same, levels, atol=1e-9)


@given(seed=SEEDS, places=st.integers(1, 300), window=st.integers(1, 64), data=st.data())
@settings(deadline=None)
def test_bits_that_differ_are_counted_at_every_place(seed, places, window, data):
    random = np.random.default_rng(seed)
    known, recent = (random.integers(2**32, size=size, dtype=np.uint32) for size in (places + window - 1, window))
    frames = np.array(data.draw(st.lists(st.integers(0, window - 1), min_size=1, max_size=8)))
    expected = [
        sum((int(known[place + frame]) ^ int(recent[frame])).bit_count() for frame in frames) for place in range(places)
    ]
    for count in (fingerprint._differing, fingerprint._compiled_differing):
        np.testing.assert_array_equal(count(known, recent, frames), expected)


@pytest.mark.parametrize("copy", [True, False])
def test_a_compiled_stream_suspects_what_another_does(heard, copied, copy):
    opened, (samples, rate) = SpeakerStore.open(copied), soundfile.read(heard("anna"))
    known = [fingerprint_of(samples if copy else samples[::-1].copy(), rate)]
    for compiled in (False, True):
        detector = ReplayDetector(known, rate, compiled=compiled)
        for at in range(0, len(samples), 500):
            detector.push(samples[at : at + 500])
        assert detector.close() is copy
    assert Verifier(opened, "anna", compiled=True).replay_detector(rate) is not None


# Kernel values.


@cache
def population() -> Population:
    return train_population(pool_of(codebooks(SPEAKERS)), SMALL.machines)


def frames_near(seed: int, count: int) -> np.ndarray:
    """Frames near somebody's centroids, some far from everybody."""
    random = np.random.default_rng(seed)
    pool = population().pool.centroids
    near = pool[random.integers(len(pool), size=count)] + 0.2 * random.standard_normal((count, pool.shape[1]))
    near[::7] += random.choice([1.0, 30.0])
    return near


@given(
    seed=SEEDS,
    frames=st.integers(1, 20),
    speakers=st.integers(1, 4),
    features=st.integers(1, 45),
    blocks=st.integers(1, 3),
    widths=st.integers(0, 3),
)
@settings(deadline=None)
def test_kernel_values_and_their_sums_are_those_of_exact_numbers(seed, frames, speakers, features, blocks, widths):
    random = np.random.default_rng(seed)
    count = blocks * tile_kernels.COLUMNS
    x, y = random.normal(0.0, 0.7, (frames, features)), random.normal(0.0, 0.7, (speakers, count, features))
    ends = -0.5 * (x**2).sum(1, keepdims=True), -0.5 * (y**2).sum(2)[:, None, :]
    left = np.concatenate((x, ends[0], np.ones((frames, 1))), axis=1).astype(np.float32)
    right = np.concatenate((y.transpose(0, 2, 1), np.ones((speakers, 1, count)), ends[1]), axis=1)
    right = np.ascontiguousarray(right, dtype=np.float32)
    exact = np.exp(-0.5 * ((x[None, :, None] - y[:, None]) ** 2).sum(-1))
    for name, bound in (("mixed", 1e-12), ("float32", 1e-5)):
        precision = Precision.named(name, compiled=True)
        coefficients = random.standard_normal((speakers, widths, count)).astype(precision.sums)
        tiles = np.full((speakers, frames, count), np.nan, np.float32)
        kept = np.flatnonzero(random.random(speakers) < 0.5)
        sums, values = precision.kernel_sums(left, precision.laid_out(right), coefficients, kept)
        precision.kernel_values(left, precision.laid_out(right), tiles)
        np.testing.assert_array_equal(values, tiles[kept])
        # Numbers as large as the exponent's parts are rounded to 24 bits, once for each of the features.
        largest = float(max(-ends[0].min(), -ends[1].min(), 1.0))
        assert np.abs(tiles - exact).max() < 2.0**-23 * (largest * np.sqrt(features + 2) + 4)
        assert tiles.max() <= 1.0
        expected = np.matmul(tiles.astype(np.float64), coefficients.astype(np.float64).transpose(0, 2, 1))
        assert sums.dtype == precision.sums
        np.testing.assert_allclose(sums, expected, atol=bound * max(1.0, np.abs(coefficients).sum()))


@given(seed=SEEDS, cuts=st.lists(st.integers(0, 30), max_size=6))
@settings(deadline=None)
def test_margins_of_a_frame_are_the_same_bits_whatever_stands_beside_it(seed, cuts):
    x = frames_near(seed, 30)
    kinds = frozenset({"one_vs_one", "one_class"})
    scorer = MarginScorer(population(), np.array([2]), kinds, dtype="mixed", compiled=True)
    whole, at = scorer(x), sorted({0, 30, *cuts})
    parts = [scorer(x[a:b]) for a, b in pairwise(at)]
    np.testing.assert_array_equal(np.concatenate([part.one_class for part in parts]), whole.one_class)
    # The claim's own coefficients meet the kernel values in a library's product, in double precision.
    np.testing.assert_allclose(np.concatenate([part.pair for part in parts]), whole.pair, atol=1e-12)


@pytest.mark.parametrize("claims", [[3], [0, 5, 2], [4, 4], list(range(SPEAKERS))])
@pytest.mark.parametrize("kinds", [KINDS, frozenset({"one_class"}), frozenset({"one_vs_one", "one_class"})])
@pytest.mark.parametrize(("dtype", "tolerance"), [("mixed", 1e-5), ("float32", 1e-3)])
def test_margins_agree_with_those_in_double(claims, kinds, dtype, tolerance):
    x, numbers = frames_near(3, 50), np.array(claims)
    double = MarginScorer(population(), numbers, kinds)(x)
    found = MarginScorer(population(), numbers, kinds, dtype=dtype, compiled=True)(x)
    for kind in ("pair", "one_class", "one_vs_rest"):
        expected, value = getattr(double, kind), getattr(found, kind)
        assert (value is None) == (expected is None)
        if expected is not None and value is not None:
            assert value.dtype == (np.float32 if dtype == "float32" else np.float64)
            np.testing.assert_allclose(value, expected, atol=tolerance, err_msg=kind)


def test_double_precision_has_nothing_compiled_and_changes_no_bit():
    x, numbers = frames_near(4, 20), np.array([1])
    plain, asked = (MarginScorer(population(), numbers, KINDS, compiled=compiled)(x) for compiled in (False, True))
    np.testing.assert_array_equal(asked.pair, plain.pair)


def test_families_of_machines_are_summed_alike():
    family = train_population(pool_of(codebooks(4)), SMALL.machines, family=6)
    x = frames_near(5, 30)
    plain = MarginScorer(family, np.array([1]), KINDS)(x)
    compiled = MarginScorer(family, np.array([1]), KINDS, dtype="mixed", compiled=True)(x)
    # The log-odds of a share of machines, each of which has a margin of 0 within 1e-5 of some frame at most.
    assert np.mean(compiled.pair == plain.pair) > 0.99
    np.testing.assert_allclose(compiled.one_class, plain.one_class, atol=1e-5)


def test_panels_are_scored_alike():
    rivals = SMALL.machines.model_copy(update={"rivals": 3})
    people = train_population(pool_of(codebooks(SPEAKERS)), rivals)
    x, systems = FeatureBlock(frames_near(6, 40), 40, np.zeros(40)), ("rpoao", "worst_rival", "refined_worst_rival")
    found = []
    for how in (ScoringSettings(FixedSigmoid()), ScoringSettings(FixedSigmoid(), "mixed", compiled=True)):
        running = scorer_among(people, [5, 0], systems, how).start()
        running.push(x)
        found.append(running.scores())
    for name in systems:
        np.testing.assert_allclose(found[1][name], found[0][name], atol=1e-6)


# Claims.


@pytest.mark.parametrize("system", RULES)
@pytest.mark.parametrize("rate", [None, 44_100])
def test_a_verifier_scores_as_without(copied, heard, system, rate):
    opened = SpeakerStore.open(copied)
    threshold = -2.0 if RULES[system].comparison else None
    plain, compiled = (
        Verifier(opened, "anna", system=system, threshold=threshold, compiled=choice) for choice in (False, True)
    )
    samples, own = soundfile.read(heard("anna"))
    streams = [verifier.stream(rate or own) for verifier in (plain, compiled, compiled)]
    sizes = (10**6, 10**6, 100)
    for stream, size in zip(streams, sizes, strict=True):
        for at in range(0, len(samples), size):
            stream.push(samples[at : at + size])
    expected, whole, cut = (stream.close() for stream in streams)
    # Rules that count frames may see a margin of nothing on either side of 0.
    allowed = 1e-5 if not RULES[system].binary else 1.5 / expected.frames
    assert whole.frames == expected.frames
    assert whole.score == pytest.approx(expected.score, abs=allowed)
    exact = 1e-9 if not RULES[system].whole and not RULES[system].parts else 1e-6
    assert cut.score == pytest.approx(whole.score, abs=exact)


def test_a_verifier_loads_what_it_needs_before_its_first_stream(copied):
    code = f"""
import sys
from pipeline import SpeakerStore, Verifier, load_compiled
store = SpeakerStore.open({str(copied)!r})
Verifier(store, "anna").stream()
print("numba" in sys.modules)
Verifier(store, "anna", compiled=True)
before = set(sys.modules)
load_compiled()
print("numba" in sys.modules, set(sys.modules) == before)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True", "True"]


def test_verifying_a_file_waits_for_no_library_that_it_does_not_need(copied, heard):
    """Each of these takes a tenth of a second to a second to load."""
    code = f"""
import sys
from pipeline import SpeakerStore, Verifier
update = Verifier(SpeakerStore.open({str(copied)!r}), "anna").verify_file({str(heard("anna"))!r})
print(update.llr is not None)
print(sorted({{"numba", "scipy", "sklearn", "joblib", "matplotlib", "librosa", "dask"}} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["True", "[]"]


# What is kept on disk.


def of_shared(copy: Path) -> str:
    """What a copy of the package adds to the names of compiled functions."""
    code = "import pipeline.compiling as c; f = lambda x: x; c.compiled('f8(f8)')(f); print(f.__qualname__)"
    run = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.mark.parametrize("name", compiling.SHARED)
def test_a_change_of_what_compiled_functions_share_is_noticed(tmp_path, name):
    shutil.copytree(PACKAGE, tmp_path / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    before = of_shared(tmp_path)
    with (tmp_path / "pipeline" / name).open("a") as file:
        file.write("\n# changed\n")
    assert of_shared(tmp_path) != before


def test_what_is_compiled_into_other_modules_is_known_as_shared():
    """numba looks at a function's own file alone, so whatever it is made with must be in SHARED."""
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    of_numba = {
        name
        for name, text in sources.items()
        if any(
            (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in {"numba", "llvmlite"})
            or (isinstance(node, ast.ImportFrom) and node.module == "pipeline.compiling")
            for node in ast.parse(text).body
        )
    }
    used = set()
    for name in of_numba:
        for node in ast.parse(sources[name]).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pipeline."):
                used.add(node.module.removeprefix("pipeline.").replace(".", "/") + ".py")
    assert used & of_numba <= set(compiling.SHARED)
    assert {"machines/tile_kernels.py", "fingerprint_kernels.py", "features/lpc_kernels.py"} <= of_numba


@pytest.mark.parametrize("module", ["verification", "features.stream", "machines.population", "server.settings"])
def test_nothing_is_loaded_before_it_is_asked_for(module):
    code = f"import sys, pipeline.{module}; print('numba' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
