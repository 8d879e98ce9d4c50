"""Names that the reference documents, read from the package."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import pipeline
import pipeline.evaluation
import pipeline.metrics
from pipeline.posteriors.base import LinearLogOdds, MarginPosterior
from pipeline.posteriors.classifiers import PosteriorClassifier
from pipeline.posteriors.estimators import POSTERIORS

# Posteriors that are not in POSTERIORS.
OTHERS = {
    "pipeline.posteriors.sigmoid": ("FixedSigmoid",),
    "pipeline.posteriors.implied": ("ImpliedPosterior", "calibration_score"),
    "pipeline.posteriors.kernel_logistic": ("KernelLogistic",),
    "pipeline.posteriors.classifiers": ("PairwisePosteriorClassifier", "OneVsRestPosteriorClassifier"),
    "pipeline.posteriors.heldout": ("margins_for",),
    "pipeline.posteriors.estimators": ("make_posterior",),
    "pipeline.scoring.calibration": ("LogisticCalibration", "MixtureCalibration", "fit_calibration"),
}
EVERY_DAY = ("enroll", "Store", "Verifier", "Identifier", "VerificationStream", "Update", "read_corpus", "assess")
SHOWN_BASES = {MarginPosterior, LinearLogOdds, PosteriorClassifier}


def directive(value: Any) -> list[str]:
    """Return the autodoc directive of a class or a function."""
    name = f"{value.__module__}.{value.__qualname__}"
    if not inspect.isclass(value):
        return [f".. autofunction:: {name}", ""]
    lines = [f".. autoclass:: {name}", "   :members:"]
    if issubclass(value, Enum):
        lines.append("   :undoc-members:")
    if any(base in SHOWN_BASES for base in value.__bases__):
        lines.append("   :show-inheritance:")
    return [*lines, ""]


def page(values: Iterable[Any]) -> str:
    """Return a block of autodoc directives."""
    lines = [line for value in values for line in directive(value)]
    return "\n".join(["```{eval-rst}", *lines, "```"])


def documented(module: Any) -> list[Any]:
    """Return the public classes and functions of ``module``; constants have no docstring."""
    named = [getattr(module, name) for name in module.__all__]
    return [value for value in named if inspect.isclass(value) or inspect.isfunction(value)]


def api() -> str:
    """Return the names of the package, the most used first, except those on pages of their own."""
    elsewhere = {*documented(pipeline.evaluation), *documented(pipeline.metrics)}
    ours = [
        value
        for value in documented(pipeline)
        if value not in elsewhere
        and not value.__module__.startswith(("pipeline.errors", "pipeline.config", "pipeline.posteriors"))
    ]
    first = [getattr(pipeline, name) for name in EVERY_DAY]
    rest = sorted((value for value in ours if value not in first), key=lambda value: str(value.__name__).lower())
    return f"{page(first)}\n\n## More\n\n{page(rest)}"


def evaluation() -> str:
    """Return the names of ``pipeline.metrics`` and ``pipeline.evaluation``."""
    return page([*documented(pipeline.metrics), *documented(pipeline.evaluation)])


def estimators() -> str:
    """Return the base class, every kind, and the rest of ``pipeline.posteriors``."""
    others = [getattr(importlib.import_module(module), name) for module, names in OTHERS.items() for name in names]
    return page([MarginPosterior, LinearLogOdds, *POSTERIORS.values(), *others, PosteriorClassifier])


PAGES: dict[str, Callable[[], str]] = {"api": api, "evaluation": evaluation, "estimators": estimators}
