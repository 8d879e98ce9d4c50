"""The posteriors of single margins by name, as settings files and tables have them."""

from __future__ import annotations

from typing import Any

from pipeline.errors import ConfigError
from pipeline.posteriors.base import MarginPosterior
from pipeline.posteriors.cosine import CosineExpansion
from pipeline.posteriors.gaussian import TiedGaussian, TwoGaussian
from pipeline.posteriors.histogram import HistogramPosterior
from pipeline.posteriors.isotonic import IsotonicPosterior
from pipeline.posteriors.newton import NewtonSigmoid
from pipeline.posteriors.platt import PlattSigmoid

POSTERIORS: dict[str, type[MarginPosterior]] = {
    estimator.kind: estimator
    for estimator in (
        PlattSigmoid,
        NewtonSigmoid,
        TiedGaussian,
        TwoGaussian,
        CosineExpansion,
        IsotonicPosterior,
        HistogramPosterior,
    )
}
"""Every estimator by its kind. The fixed sigmoid learns nothing and is not among them."""


def make_posterior(kind: str, **settings: Any) -> MarginPosterior:
    """An estimator of ``kind``, not fitted yet, with its own ``settings`` by name.

    Raises ConfigError for a kind that is not in ``POSTERIORS`` or a setting that it does not have.
    """
    if kind not in POSTERIORS:
        raise ConfigError(f"posterior: kind is one of {', '.join(POSTERIORS)}, got {kind!r}")
    try:
        return POSTERIORS[kind](**settings)
    except TypeError as error:
        raise ConfigError(f"posterior {kind!r}: {str(error).rpartition('() ')[2]}") from None
