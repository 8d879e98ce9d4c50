"""Which names the reference documents: read from the package, so that a new public name is on its page by itself."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import pipeline
import pipeline.evaluation
from pipeline.posteriors.base import MarginPosterior
from pipeline.posteriors.classifier_base import PosteriorClassifier
from pipeline.posteriors.kinds import POSTERIORS
from pipeline.posteriors.sigmoid_fits import LinearLogOdds

# Of the posteriors that are no entry of POSTERIORS.
OTHERS = {
    "pipeline.posteriors.sigmoid": ("FixedSigmoid",),
    "pipeline.posteriors.implied": ("ImpliedPosterior", "calibration_score"),
    "pipeline.posteriors.likelihood": ("KernelLogistic",),
    "pipeline.posteriors.classifiers": ("PairwisePosteriorClassifier", "OneVsRestPosteriorClassifier"),
    "pipeline.posteriors.heldout": ("margins_for",),
    "pipeline.posteriors.kinds": ("make_posterior",),
    "pipeline.posteriors.calibrated": ("LogisticCalibration", "MixtureCalibration", "fit_calibration"),
}
SHOWN_BASES = {MarginPosterior, LinearLogOdds, PosteriorClassifier}


def directive(found: Any) -> list[str]:
    """What autodoc is to be told of a class, a function or a value."""
    name = f"{found.__module__}.{found.__qualname__}"
    if not inspect.isclass(found):
        return [f".. autofunction:: {name}", ""]
    lines = [f".. autoclass:: {name}", "   :members:"]
    if issubclass(found, Enum):
        lines.append("   :undoc-members:")
    if any(base in SHOWN_BASES for base in found.__bases__):
        lines.append("   :show-inheritance:")
    return [*lines, ""]


def page(found: Iterable[Any]) -> str:
    """A block for autodoc with each of ``found``."""
    lines = [line for each in found for line in directive(each)]
    return "\n".join(["```{eval-rst}", *lines, "```"])


def documented(module: Any) -> list[Any]:
    """Classes and functions that ``module`` names public; constants have no docstring to show."""
    named = [getattr(module, name) for name in module.__all__]
    return [value for value in named if inspect.isclass(value) or inspect.isfunction(value)]


def api() -> str:
    """The names of the package, but for those that the pages on evaluation and on errors have."""
    elsewhere = set(documented(pipeline.evaluation))
    ours = [
        value
        for value in documented(pipeline)
        if value not in elsewhere and value.__module__ not in {"pipeline.errors", "pipeline.config"}
    ]
    return page(ours)


def evaluation() -> str:
    """The names of ``pipeline.evaluation``."""
    return page(documented(pipeline.evaluation))


def estimators() -> str:
    """The base, every kind, and what belongs to them."""
    others = [getattr(importlib.import_module(module), name) for module, names in OTHERS.items() for name in names]
    return page([MarginPosterior, LinearLogOdds, *POSTERIORS.values(), *others, PosteriorClassifier])


PAGES: dict[str, Callable[[], str]] = {"api": api, "evaluation": evaluation, "estimators": estimators}
