"""What the reports explain in words: how far the numbers reach, what they mean, what each figure shows."""

from __future__ import annotations

CAVEAT = (
    "These error rates hold for audio like this list's. Where a speaker was enrolled and tried over one microphone,"
    " room or line, part of what was recognised is that channel: expect more errors over another one, and find the"
    " threshold on recordings of the channel that it is for."
)
TERMS = (
    (
        "False accept (FA), false reject (FR)",
        "A false claim that was let through, and a true claim that was turned away; in percent of the false and of the"
        " true claims. A claim is accepted from the threshold on.",
    ),
    (
        "Equal error rate (EER)",
        "Both error rates at the threshold where they are equal, which is chosen on this very list. The hull EER is"
        " read off the convex hull of the error curve, and never exceeds it.",
    ),
    (
        "95 % interval",
        "Where the EER may lie given who happened to be in the list: its speakers drawn again and again, each with all"
        " of their trials. Where no error was made it has no width, which does not mean that none is to be expected.",
    ),
    (
        "minDCF, actDCF",
        "Detection cost at an operating point, a share of that of the better of accepting and rejecting everybody: by"
        " the best threshold for this list, and by the one that Bayes' rule gives for calibrated scores.",
    ),
    (
        "Cllr, minimum Cllr, by line",
        "Cost of the scores as log-likelihood ratios over all operating points, in bits: as they are, after the best"
        " rising map for this list, and along the best straight line, which an offset and a scale could have reached."
        " 0 is perfect, 1 is worth nothing.",
    ),
    (
        "Identification error",
        "Share of the files in which some false claim scores as high as the true one.",
    ),
    ("n/a", "Not defined: a list of one class, too few speakers, or scores without a calibration or a threshold."),
)

# By file stem, in the order of the page: what a figure shows for those who cannot see it, and its caption.
FIGURES_OF_DEFAULT = {
    "det_interval": (
        "DET curve of the default system with its interval: false rejects against false accepts, falling from the upper"
        " left to the lower right.",
        "Detection error trade-off of the default system, with its interval point by point. Dotted: FA = FR.",
    ),
    "score_histogram": (
        "Histograms of the default system's scores, one of the true and one of the false claims.",
        "Scores of the true and of the false claims. Claims above the threshold are accepted.",
    ),
    "reliability": (
        "Observed share of true claims against the predicted probability, with intervals.",
        "Calibration: on the dotted line predictions come true as often as they say.",
    ),
    "bayes_error": (
        "Actual and minimum detection cost against the prior log odds of a true claim.",
        "Detection cost at every prior. The gap between the lines is what calibration loses.",
    ),
}
FIGURES_OF_ALL = {
    "det": (
        "DET curves of all systems: false rejects against false accepts. Their equal error rates are in the table.",
        "Detection error trade-off of all systems; nearer to the lower left is better.",
    ),
    **{
        f"fa_fr_{key}": (
            f"False accepts and false rejects against the threshold, one panel for each of the {words}.",
            f"Error rates against the threshold: {words}.",
        )
        for key, words in (
            ("one_vs_rest", "one-vs-rest systems"),
            ("one_vs_one", "one-vs-one systems"),
            ("worst_rival", "worst-rival systems"),
            ("comparison", "systems there to be compared with"),
        )
    },
}
