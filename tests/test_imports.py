"""The architecture, read from the source: who may import whom, what an import costs, what is never used."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import pipeline

PACKAGE = Path(pipeline.__file__).resolve().parent

# From the ground up. A module may import modules of lower layers only, so that no two can need each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    # vocabulary
    (
        "_version",
        "commands",
        "errors",
        "features",
        "files",
        "formats",
        "machines",
        "posteriors",
        "reproduce",
        "threads",
        "server",
    ),
    ("backends", "cluster_tasks", "compiling", "formats.libraries", "formats.rttm"),
    (
        "audit_chain",
        "cluster",
        "config",
        "corpus",
        "early",
        "html_page",
        "keys",
        "microphone",
        "migration",
        "pcm",
        "prompts",
        "report_words",
        "reproduce.significance",
        "reproduce.source",
        "resources",
        "results",
        "sound_files",
        "store_layout",
        "updates",
    ),
    # pure numbers, and files of one kind
    (
        "audio",
        "audit",
        "codebook",
        "degradation",
        "evaluation.columns",
        "evaluation.curves",
        "evaluation.lines",
        "features.deltas",
        "features.framing",
        "features.frame_kernels",
        "features.lpc_kernels",
        "fingerprint_kernels",
        "features.mfcc",
        "machines.exponential",
        "features.standardize",
        "machines.mixtures",
        "manifest",
        "posteriors.regression",
        "posteriors.sigmoid",
        "reproduce.files",
    ),
    ("features.lpc", "machines.kernel_block", "machines.segment_kernels", "machines.solver_kernels"),
    ("machines.segments",),
    ("machines.tile_kernels",),
    ("machines.pool",),
    ("machines.rivals", "machines.solver"),
    ("machines.cholesky", "machines.rest_solver"),
    (
        "arrays",
        "evaluation.affine",
        "evaluation.metrics",
        "evaluation.pav",
        "evaluation.scores",
        "evaluation.trials",
        "features.gate",
        "features.perceptual",
        "formats.blocks",
        "formats.writing",
        "fingerprint",
        "machines.population",
        "machines.segment_training",
        "posteriors.base",
        "posteriors.classics",
        "posteriors.machine_posteriors",
        "reproduce.reuters",
    ),
    (
        "evaluation.costs",
        "evaluation.joining",
        "evaluation.speakers",
        "evaluation.systems",
        "formats.bosaris",
        "formats.rows",
        "formats.spk2utt",
        "machines.grown_pairs",
        "machines.panels",
        "posteriors.gaussian",
        "posteriors.heldout",
        "posteriors.histogram",
        "posteriors.isotonic",
        "posteriors.likelihood",
        "posteriors.reweighted",
        "posteriors.sigmoid_fits",
        "replay_memory",
        "reproduce.tables",
    ),
    (
        "evaluation.diagrams",
        "evaluation.replicates",
        "formats.lists",
        "formats.tables",
        "machines.implied",
        "posteriors.cosine",
        "posteriors.implied",
        "posteriors.newton",
        "posteriors.platt",
        "reproduce.platt1999_tasks",
    ),
    (
        "evaluation.bootstrap",
        "machines.pair_batches",
        "formats.parquet",
        "posteriors.kinds",
        "posteriors.trained",
        "reproduce.implied2020_credit",
    ),
    (
        "evaluation.comparison",
        "formats.reading",
        "posteriors.classifier_base",
        "posteriors.map_fitting",
        "reproduce.platt1999_machines",
    ),
    (
        "evaluation",
        "features.stream",
        "formats.listing",
        "formats.scored",
        "machines.assembly",
        "posteriors.coupling",
    ),
    (
        "frontend",
        "holdout",
        "machines.rival_removal",
        "plots.style",
        "posteriors.calibrated",
        "posteriors.classifiers",
    ),
    (
        "calibration",
        "copies",
        "phrase_recorder",
        "plots.calibration",
        "plots.det",
        "plots.scores",
        "plots.reproduce_implied2020",
        "plots.reproduce_lin2007",
        "plots.reproduce_platt1999",
        "plots.reproduce_xin2002",
        "recording_quality",
        "reproduce.outcome",
        "scoring",
    ),
    ("panel_scoring",),
    ("duplicates", "heldout_posteriors", "heldout_scoring", "plots", "reproduce.implied2020_figures"),
    # the store
    ("store_files", "store_folder", "store_trials", "transfer_file"),
    ("store_rivals",),
    ("store",),
    ("claim_scorers", "store_writer"),
    ("file_scoring", "voices"),
    ("enrollment_gate", "rounds"),
    ("admission",),
    # use cases
    ("assessment", "enrollment", "sealing", "transfer", "verification"),
    # what is made of their outcomes
    (
        "audit_events",
        "html_report",
        "reproduce.implied2020",
        "reproduce.lin2007",
        "reproduce.platt1999",
        "reproduce.xin2002",
    ),
    ("html_comparison", "report_figures"),
    ("comparison_report", "report"),
    # the service, and its client
    (
        "client_answers",
        "server.curves",
        "server.live_store",
        "server.messages",
        "server.metrics",
        "server.problems",
        "server.tokens",
    ),
    ("client", "server.settings"),
    ("server.connections", "server.guard", "server.inbox", "server.training"),
    ("server.recorder", "server.service", "server.uploads"),
    ("server.streams",),
    ("server.app",),
    ("server.run",),
    # doors
    ("terminal",),
    ("commands.convert", "commands.shared", "live_line", "reproduce.command"),
    ("commands.listening",),
    (
        "commands.audit",
        "commands.enroll",
        "commands.evaluate",
        "commands.record",
        "commands.seal",
        "commands.serve",
        "commands.speakers",
        "commands.verify",
    ),
    ("commands.demo",),
    ("cli",),
    # the package itself: a list of public names
    ("",),
)
LEVEL = {module: level for level, layer in enumerate(LAYERS) for module in layer}

VOCABULARY = {"errors", "config"}
PURE_ROOMS = ("features", "machines", "posteriors", "evaluation")
PURE = {module for module in LEVEL if module.split(".")[0] in PURE_ROOMS} | {
    "backends",
    "compiling",
    "calibration",
    "codebook",
    "degradation",
    "heldout_posteriors",
    "heldout_scoring",
    "holdout",
    "panel_scoring",
    "scoring",
    "threads",
}
DOORS = {name for name in LEVEL if name.startswith("commands.")} | {"cli", "live_line", "reproduce.command", "terminal"}
READS_LISTS = "evaluation.lines"  # the one of the pure rooms that opens files
SLOW = {"numba", "matplotlib", "librosa", "sklearn", "scipy"}


def name_of(path: Path) -> str:
    """Dotted name of a source file inside the package; the package itself is the empty name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(SOURCES[module].read_text(encoding="utf-8"))


def imported(tree: ast.AST, module: str = "", *, is_package: bool = False) -> set[str]:
    """Absolute dotted names that ``module`` imports: anywhere in it, for types only or when a function is called."""
    found = set()
    home = ["pipeline", *(module.split(".") if module else [])]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = node.level - (1 if is_package else 0)
            start = home[: len(home) - up] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            # What is imported from a package may itself be a module.
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


@cache
def uses(module: str) -> frozenset[str]:
    """Modules of this package that ``module`` imports."""
    own = set()
    for name in imported(tree_of(module), module, is_package=SOURCES[module].name == "__init__.py"):
        first, _, rest = name.partition(".")
        if first != "pipeline":
            continue
        while rest and rest not in SOURCES:
            rest = rest.rpartition(".")[0]
        own.add(rest)
    return frozenset(own - {module})


def calls_of(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


# The reader of imports is itself tried out first.


def test_imports_of_every_form_are_seen():
    source = """
import pipeline.store
from pipeline import audio
from pipeline.errors import ConfigError
def f():
    from pipeline.machines import pool
if TYPE_CHECKING:
    from pipeline.cli import main
from .sibling import x
from .. import pcm
"""
    assert imported(ast.parse(source), "features.stream") == {
        "pipeline.store",
        "pipeline.audio",
        "pipeline.errors.ConfigError",
        "pipeline.machines.pool",
        "pipeline.cli.main",
        "pipeline.features.sibling.x",
        "pipeline.pcm",
    }
    assert imported(ast.parse("from .curves import x"), "evaluation", is_package=True) == {
        "pipeline.evaluation.curves.x"
    }


def test_the_modules_that_the_store_uses_are_seen():
    assert {"arrays", "manifest", "calibration", "machines.pool", "posteriors.coupling"} <= uses("store")
    assert "verification" in uses("commands.verify")


# Layers


def test_every_module_has_its_layer_and_every_layer_its_modules():
    assert sorted(LEVEL) == sorted(SOURCES)
    assert len(LEVEL) == sum(map(len, LAYERS)), "a module is listed twice"


@pytest.mark.parametrize("module", SOURCES)
def test_a_module_imports_only_from_layers_below_its_own(module):
    upwards = {other for other in uses(module) if LEVEL[other] >= LEVEL[module]}
    assert not upwards, f"{module or 'pipeline'} imports {sorted(upwards)}"


@pytest.mark.parametrize("module", sorted(PURE))
def test_pure_modules_meet_neither_files_nor_the_store_nor_a_door(module):
    assert uses(module) <= PURE | VOCABULARY | ({"files"} if module == READS_LISTS else set())


@pytest.mark.parametrize("module", [name for name in SOURCES if name.split(".")[0] == "evaluation"])
def test_the_evaluation_knows_nothing_of_the_package_but_its_errors(module):
    allowed = {"errors", "files"} if module == READS_LISTS else {"errors"}
    assert {other for other in uses(module) if other.split(".")[0] != "evaluation"} <= allowed


@pytest.mark.parametrize("module", [name for name in SOURCES if name.split(".")[0] == "features"])
def test_features_know_nothing_of_machines_and_machines_nothing_of_features(module):
    assert {other.split(".")[0] for other in uses(module)} <= {"features", "compiling", *VOCABULARY}
    for other in SOURCES:
        if other.split(".")[0] in {"machines", "posteriors"}:
            assert module not in uses(other)


def test_only_doors_draw_and_report():
    reports, figures = {"report", "comparison_report"}, "report_figures"
    assert {module for module in SOURCES if reports & uses(module)} <= DOORS
    assert {module for module in SOURCES if figures in uses(module)} == reports
    assert {module for module in SOURCES if "plots" in uses(module)} <= DOORS | {figures}


def test_nobody_imports_a_door_but_another_door():
    for module in SOURCES:
        assert not (uses(module) & DOORS) or module in DOORS


def test_use_cases_do_not_import_each_other():
    cases = {"assessment", "enrollment", "verification"}
    assert all(not (uses(case) & cases) for case in cases)


def test_only_the_use_cases_that_enroll_seal_and_import_can_write_a_store():
    assert {module for module in SOURCES if "store_writer" in uses(module)} == {"enrollment", "sealing", "transfer"}


def test_no_chain_of_imports_comes_back_to_its_start():
    done: set[str] = set()

    def visit(module: str, chain: tuple[str, ...]) -> None:
        assert module not in chain, " -> ".join((*chain, module))
        if module not in done:
            for other in uses(module):
                visit(other, (*chain, module))
            done.add(module)

    for module in SOURCES:
        visit(module, ())
    assert done == set(SOURCES)


# What an import costs


def measured(statement: str) -> tuple[float, set[str]]:
    """Seconds that ``statement`` takes in a fresh process, and the top-level modules loaded after it."""
    code = (
        "import sys, time; started = time.perf_counter(); "
        f"{statement}\nprint(time.perf_counter() - started, *sys.modules, sep='\\n')"
    )
    seconds, *modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    return float(seconds), {name.partition(".")[0] for name in modules}


def test_importing_the_package_is_quick_and_loads_no_slow_library():
    runs = [measured("import pipeline") for _ in range(3)]
    assert min(seconds for seconds, _ in runs) < 0.3
    _, loaded = runs[0]
    assert "pipeline" in loaded
    assert not loaded & (SLOW | {"numpy", "pydantic"})


def test_the_command_line_says_its_help_without_loading_a_slow_library():
    _, loaded = measured("import pipeline.cli")
    assert not loaded & (SLOW | {"numpy"})


def test_verification_loads_nothing_that_trains_or_draws():
    _, loaded = measured("import pipeline.verification")
    assert "numpy" in loaded
    assert not loaded & {"numba", "matplotlib", "librosa", "sklearn"}


@pytest.mark.parametrize("words", ["enroll nowhere --store s", "plot nowhere --out x.png", "compare here there"])
def test_a_mistake_in_a_command_is_told_before_a_slow_library_is_loaded(words):
    command = f"sys.argv[1:] = {words.split()}; import contextlib; from pipeline.cli import main"
    _, loaded = measured(f"{command}\nwith contextlib.suppress(SystemExit): main()\n")
    assert "numpy" in loaded
    assert not loaded & SLOW


def test_every_public_name_is_there_and_documented():
    assert len(pipeline.__all__) == len(set(pipeline.__all__)) > 10
    for name in pipeline.__all__:
        value = getattr(pipeline, name)
        if name != "__version__":
            assert value.__name__ == name
            assert value.__doc__
    assert set(pipeline.__all__) <= set(dir(pipeline))


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'enrol'"):
        _ = pipeline.enrol


def test_the_public_names_for_type_checkers_are_those_that_are_loaded():
    promised = {}
    for node in ast.walk(tree_of("")):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pipeline."):
            promised |= {alias.name: node.module for alias in node.names}
    assert promised.keys() == set(pipeline.__all__)
    for name, home in promised.items():
        assert getattr(pipeline, name) is getattr(importlib.import_module(home), name)


# What is never used


@pytest.mark.parametrize("module", SOURCES)
def test_no_module_runs_text_as_code_or_unpickles(module):
    tree = tree_of(module)
    roots = {name.partition(".")[0] for name in imported(tree)}
    assert not roots & {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "subprocess", "socket"}
    for call in calls_of(tree):
        called = call.func
        if isinstance(called, ast.Name):
            assert called.id not in {"eval", "exec", "compile", "__import__"}, f"line {call.lineno}"
        if isinstance(called, ast.Attribute):
            assert (
                called.attr not in {"system", "popen"}
                or not isinstance(called.value, ast.Name)
                or (called.value.id != "os")
            ), f"line {call.lineno}"
        for keyword in call.keywords:
            assert not (keyword.arg in {"shell", "allow_pickle"} and getattr(keyword.value, "value", True)), call.lineno


@pytest.mark.parametrize("module", SOURCES)
def test_every_module_begins_with_a_sentence_about_itself(module):
    text = ast.get_docstring(tree_of(module))
    if module == "_version":
        return
    assert text
    assert text.splitlines()[0].rstrip().endswith((".", ":")) or "." in text
