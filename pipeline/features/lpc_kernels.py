"""``lpc``'s recursions compiled, frame by frame: the same operations in the same order, and so the same bits.

Of the few frames that a stream brings at a time, most of what numpy takes is its calls. Importing this module loads
numba.
"""

from __future__ import annotations

from typing import Any

from pipeline.compiling import compiled


@compiled("void(f8[:,::1], f8, f8, f8[:,::1], f8[:,::1], f8[::1])", exact=True)
def levinson_durbin(r: Any, relative: Any, absolute: Any, a: Any, reflection: Any, energy: Any) -> None:
    """Solve every row of ``r`` (T, p + 1) into ``a`` and ``reflection`` (T, p) and ``energy`` (T,)."""
    order = r.shape[1] - 1
    for t in range(len(r)):
        less_energy = -(r[t, 0] * (1.0 + relative) + absolute)
        for m in range(order):
            residual = r[t, m + 1]
            for i in range(m):
                residual += a[t, i] * r[t, m - i]
            k = residual / less_energy
            # a_i += k a_(m - i) from both ends, each pair at once: either needs the other as it was.
            for i in range((m + 1) // 2):
                low, high = a[t, i], a[t, m - 1 - i]
                a[t, i] = low + k * high
                if i != m - 1 - i:
                    a[t, m - 1 - i] = high + k * low
            a[t, m] = k
            reflection[t, m] = k
            less_energy -= k * residual
        energy[t] = -less_energy


@compiled("void(f8[:,::1], f8[:,::1])", exact=True)
def cepstrum(a: Any, c: Any) -> None:
    """c_1..c_count of every row of ``a`` (T, p), into ``c`` (T, count): n c_n first, by which its sums go."""
    order, count = a.shape[1], c.shape[1]
    for t in range(len(a)):
        for n in range(1, count + 1):
            weighted = -n * a[t, n - 1] if n <= order else 0.0
            first = max(1, n - order)
            if first < n:
                total = c[t, first - 1] * a[t, n - first - 1]
                for k in range(first + 1, n):
                    total += c[t, k - 1] * a[t, n - k - 1]
                weighted -= total
            c[t, n - 1] = weighted
        for n in range(count):
            c[t, n] /= n + 1
