"""``fingerprint``'s work on a few frames at a time compiled: of theirs, most of what numpy takes is its calls.

Importing this module loads numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiling import compiled


@compiled("void(f8[::1], i8, f8[::1], f8[:,::1])")
def windowed(samples: Any, step: Any, window: Any, frames: Any) -> None:
    """``frames`` (T, L) of ``samples``, one every ``step``, each times ``window`` (L,)."""
    for t in range(len(frames)):
        within = samples[t * step : t * step + frames.shape[1]]
        for i in range(frames.shape[1]):
            frames[t, i] = within[i] * window[i]


@compiled("void(f8[:,::1], i8[::1], f8, f8[:,::1])")
def band_powers(spectrum: Any, edges: Any, least: Any, powers: Any) -> None:
    """``powers`` (T, B) between each two neighbouring ``edges`` (B + 1,), in bins of ``spectrum`` (T, 2 F).

    These are real and imaginary parts in turn. ``least`` is added to every power.
    """
    for t in range(len(spectrum)):
        for b in range(powers.shape[1]):
            total = 0.0
            for part in spectrum[t, 2 * edges[b] : 2 * edges[b + 1]]:
                total += part * part
            powers[t, b] = total + least


@compiled("void(f8[:,::1], i8, f8, u4[::1], f8[::1])")
def prints(bands: Any, lag: Any, silence: Any, found: Any, energies: Any) -> None:
    """Fingerprints ``found`` (T,) and ``energies`` (T,) of frames by their ``bands`` (T + ``lag``, B + 1).

    The powers of the ``lag`` frames before come first.
    """
    for t in range(len(found)):
        total, bits = 0.0, np.uint32(0)
        for b in range(bands.shape[1]):
            total += bands[t + lag, b]
        for b in range(bands.shape[1] - 1):
            if bands[t + lag, b + 1] * bands[t, b] > bands[t, b + 1] * bands[t + lag, b]:
                bits |= np.uint32(1) << np.uint32(b)
        energies[t] = total
        found[t] = bits if total > silence else np.uint32(0)


@compiled("void(u4[::1], u4[::1], i8[::1], u4[::1])")
def differing(known: Any, recent: Any, frames: Any, found: Any) -> None:
    """Bits ``found`` (n,) in which the ``frames`` of ``recent`` differ from ``known``, by the place where it begins."""
    found[:] = 0
    for frame in frames:
        lagged, print_ = known[frame : frame + len(found)], recent[frame]
        for place in range(len(found)):
            bits = lagged[place] ^ print_
            # Pairs of bits counted side by side, then fours, then bytes, then all of them.
            bits = bits - ((bits >> np.uint32(1)) & np.uint32(0x55555555))
            bits = (bits & np.uint32(0x33333333)) + ((bits >> np.uint32(2)) & np.uint32(0x33333333))
            bits = (bits + (bits >> np.uint32(4))) & np.uint32(0x0F0F0F0F)
            found[place] += np.uint32(bits * np.uint32(0x01010101)) >> np.uint32(24)
