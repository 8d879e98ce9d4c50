"""Downmix of a recording to one channel, the mean or a chosen one, and a test for channels with different sounds.

Two channels may be the two sides of a telephone call, or one sound and its inverse, which cancel: their mean is then
useless. Such channels are detected by the largest normalised cross-correlation of channels x and y at a short lag l,
over all blocks b of N frames,

    r(l) = sum_b sum_n x_b[n] y_b[n + l] / sqrt(sum_b sum_n x_b[n]^2  sum_b sum_n y_b[n]^2),   |l| <= L

computed from the summed cross-spectra of the blocks (Knapp and Carter, The generalized correlation method for
estimation of time delay, 1976). It is near 1 for one sound at two microphones, near 0 for two sounds, and near -1 for
an inverted one.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import AudioError

Samples = NDArray[np.float64]

# Power of the channels' mean over the channels' power: for unrelated channels at least -18 dB (64 channels).
_CANCELLED = 1e-3
_BLOCK = 4096  # N, frames
_MOST_LAG = 512  # L: 64 ms at 8 kHz, 11 ms or 3.6 m of air at 48 kHz
_MOST_COMPARED = 8  # the first channels: memory and time grow with the square of their number
# Over all pairs of the demo's trials, two voices reach at most 0.18 in magnitude; a copy 64 ms late, at least 0.7.
_ONE_SOUND = 0.3
_QUIET = 0.01  # power over that of the loudest channel, 20 dB below it: echoes and hiss, which change a mean little


class Mixed(Protocol):
    """Source of one channel mixed from a recording, with a test of the recording's channels."""

    @property
    def channels_differ(self) -> bool:
        """Return True if it is a mean of channels that have held different sounds so far, or cancel each other."""


def check_channel_number(channel: int | None, where: str) -> None:
    """Raise AudioError for a ``channel`` that is neither None nor a whole number from 1."""
    if channel is not None and (channel is True or not (isinstance(channel, int | np.integer) and channel >= 1)):
        raise AudioError(f"{where}: channels are numbered from 1, got channel {channel!r}; counted from 0?")


class Downmix:
    """One channel of the recording ``where``, block by block: ``channel``, from 1, or by default the mean of all.

    Raises AudioError for a ``channel`` that is not a whole number from 1.
    """

    def __init__(self, where: str, channel: int | None = None) -> None:
        check_channel_number(channel, where)
        self.channels: int | None = None  # of the recording, once it is known
        self._where = where
        self._channel = channel
        self._power = self._mono_power = 0.0
        self._comparison: _Comparison | None = None

    def check_has(self, channels: int) -> None:
        """Raise AudioError if a recording of ``channels`` lacks the chosen one, or had another number before."""
        if channels != (self.channels or channels):
            raise AudioError(
                f"{self._where}: all samples of a recording must have the same number of channels, got {channels} after"
                f" {self.channels}; another recording, or an array of (channels, n)?"
            )
        self.channels = channels
        if self._channel is not None and self._channel > channels:
            there = "1 channel" if channels == 1 else f"{channels} channels"
            raise AudioError(
                f"{self._where}: channel {self._channel} was to be read, and the recording has {there}; another"
                " recording, or one that was mixed before?"
            )

    def push(self, frames: Samples) -> Samples:
        """Return the channel, or the mean of all: (n, channels) to (n,). Raises AudioError as ``check_has``.

        Sums channel by channel: the summation order of numpy's ``mean``, and so the last bit, may depend on n.
        """
        self.check_has(frames.shape[1])
        if self._channel is not None:
            return np.ascontiguousarray(frames[:, self._channel - 1])
        mono: Samples = frames[:, 0]
        if frames.shape[1] == 1:
            return mono
        for channel in range(1, frames.shape[1]):
            mono = mono + frames[:, channel]
        mono = mono / frames.shape[1]
        self._comparison = self._comparison or _Comparison(min(frames.shape[1], _MOST_COMPARED))
        with np.errstate(all="ignore"):  # non-finite samples may reach this before they are refused
            self._power += float(np.vdot(frames, frames)) / frames.shape[1]
            self._mono_power += float(np.vdot(mono, mono))
            self._comparison.push(frames)
        return mono

    @property
    def channels_differ(self) -> bool:
        """Return True if the mean is of channels that have held different sounds so far, or cancel each other."""
        return self._comparison is not None and self._comparison.differ

    def check(self) -> None:
        """Raise AudioError, at the end of the recording, where the channels cancel each other."""
        if self._mono_power < _CANCELLED * self._power:
            raise AudioError(
                f"{self._where}: the channels cancel each other, and nothing is left of their mean; one of them is"
                " inverted: give one channel alone: --channel N (channel=N)"
            )


class _Comparison:
    """Powers and cross-spectra of the first ``channels``, in constant memory; the last, incomplete block waits."""

    def __init__(self, channels: int) -> None:
        self._first, self._second = np.triu_indices(channels, 1)
        self._powers = np.zeros(channels)
        self._cross = np.zeros((len(self._first), _BLOCK // 2 + 1), dtype=np.complex128)
        self._rest = np.empty((0, channels))

    def push(self, frames: Samples) -> None:
        """Take ``frames`` (n, channels or more)."""
        waiting = np.concatenate((self._rest, frames[:, : len(self._powers)]))
        whole = len(waiting) - len(waiting) % _BLOCK
        for block in waiting[:whole].reshape(-1, _BLOCK, len(self._powers)):
            spectra = np.fft.rfft(block.T)
            self._powers += (block * block).sum(axis=0)
            self._cross += spectra[self._first].conj() * spectra[self._second]
        self._rest = waiting[whole:].copy()

    @property
    def differ(self) -> bool:
        """Return True if any two channels differ in sound; channels much quieter than the loudest do not count."""
        is_heard = self._powers > _QUIET * self._powers.max()
        pairs = is_heard[self._first] & is_heard[self._second]
        powers = self._powers[self._first[pairs]] * self._powers[self._second[pairs]]
        at_lags = np.fft.irfft(self._cross[pairs], _BLOCK) / np.sqrt(powers)[:, None]
        near = np.concatenate((at_lags[:, : _MOST_LAG + 1], at_lags[:, -_MOST_LAG:]), axis=1)
        largest = np.take_along_axis(near, np.abs(near).argmax(axis=1, keepdims=True), axis=1)
        return bool((largest < _ONE_SOUND).any())
