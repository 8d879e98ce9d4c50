"""Figures of error rates and of calibration, at the column widths of a printed paper.

Each function takes scores and returns a Figure; ``save_figure`` writes it. The same scores give the same SVG, byte for
byte: no date, no random ids, text kept as text.
"""

from pipeline.evaluation.plots.calibration import plot_bayes_error, plot_reliability
from pipeline.evaluation.plots.det import det_grid, plot_det
from pipeline.evaluation.plots.scores import plot_error_rates, plot_histogram
from pipeline.evaluation.plots.style import save_figure

__all__ = [
    "det_grid",
    "plot_bayes_error",
    "plot_det",
    "plot_error_rates",
    "plot_histogram",
    "plot_reliability",
    "save_figure",
]
