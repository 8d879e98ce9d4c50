"""The command `voiceclaim record`: enroll a person who reads prompts aloud, phrase by phrase.

Prompts are three two-digit numbers, as in YOHO: 21 to 99 without multiples of ten, so that each is two words.
"""

from __future__ import annotations

import math
import random
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.enrolled import print_warnings, warnings_of
from pipeline.cli.live import QUIET_DB, Blocks, LevelMeter, microphone, pipe
from pipeline.cli.options import (
    WAIT_SECONDS,
    Channel,
    ConfigFile,
    Device,
    Jobs,
    Json,
    NewStore,
    Override,
    Raw,
    Wait,
    in_turn,
    make_folder,
    read_settings,
    refuse,
)
from pipeline.cli.terminal import cores, escape, live_line, print_json, print_line, print_note, progress_bar
from pipeline.errors import EnrollmentRefusedError, InputError, NotEnoughSpeechError

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.enrollment.report import EnrollmentReport

# A phrase ends after this much speech followed by this long a pause, at the latest after _MOST_SECONDS.
_LEAST_SPEECH = 0.6  # seconds
_PAUSE = 0.8
_MOST_SECONDS = 20.0
_NUMBERS = 3


def record(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the speaker to enroll.")],
    store: NewStore,
    audio: Annotated[str, typer.Argument(metavar="-", help="Read a pipe instead of the microphone.")] = "",
    seconds: Annotated[float, typer.Option(min=1, metavar="S", help="Seconds of speech to collect.")] = 40.0,
    device: Device = None,
    channel: Channel = None,
    raw: Raw = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep the recordings in DIR/NAME (default: delete them)."),
    ] = None,
    config: ConfigFile = None,
    override: Override = None,
    jobs: Jobs = None,
    wait: Wait = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Enroll a person who reads digits aloud.

    Read the digits that are shown, phrase by phrase; a phrase ends at a pause. A line shows the level and how much
    speech is still needed; a phrase that is clipped or too quiet does not count and is asked for again. Ctrl-C ends the
    recording early.

    Examples:
    - `voiceclaim record anna --store speakers.store`
    - `arecord -f S16_LE -r 16000 | voiceclaim record anna --store speakers.store -`
    """
    from pipeline.audio.corpus import Utterance
    from pipeline.audio.downmix import Downmix
    from pipeline.enrollment.enroll import enroll
    from pipeline.verification.audio_warnings import WARNINGS

    if audio not in {"", "-"}:
        raise typer.BadParameter(f"AUDIO must be - for a pipe, or omitted for the microphone, got {audio!r}")
    if audio != "-":
        refuse("is for a pipe: give - as AUDIO", {"--raw": raw, "--channel": channel})
    mix = Downmix("<stdin>", channel)
    requested = read_settings(config, override)
    settings = _settings(store, name, requested)
    if keep is not None:
        keep = _folder_of(name, keep)
    with pipe(raw, mix) if audio == "-" else microphone(device) as (rate, blocks):
        phrases, spoken = _record_phrases(settings, rate, blocks, seconds, name)
    if mix.channels_differ and settings.checks.channels != "off":
        print_note(f"warning: {WARNINGS['channels']}")
    least = settings.codebook.min_seconds
    if spoken < least:
        raise NotEnoughSpeechError(f"recording of {name!r}", seconds=spoken, needed=least)
    with _files(phrases, rate, keep) as paths, progress_bar(quiet=as_json) as progress:
        spoken_by = {name: [Utterance(name, path) for path in paths]}
        write = partial(enroll, store, spoken_by, requested, jobs=jobs or cores(), progress=progress)
        report = _by_phrase(lambda: in_turn(store, wait, write), [] if keep else paths)
    enrolled = report.enrolled[0]
    if as_json:
        print_json(
            {"store": str(store), "name": name, "phrases": len(phrases), "speech_seconds": enrolled.seconds,
             "asked_seconds": seconds, "warnings": warnings_of(report), "elapsed_seconds": report.elapsed_seconds}
        )  # fmt: skip
        return
    print_warnings(report)
    if spoken < seconds:
        print_note(
            f"note: the audio ended after {spoken:.1f} of {seconds:g} s of speech; with less, more true claims are"
            " rejected: add recordings (enroll --add)"
        )
    print_line(f"{escape(name)}: enrolled with {enrolled.seconds:.1f} s of speech in {len(phrases)} phrases -> {store}")


def _by_phrase(write: Callable[[], EnrollmentReport], paths: Sequence[Path]) -> EnrollmentReport:
    """Enroll by calling ``write``; its findings then name phrases by number, from 1, in place of the ``paths``."""

    def renamed(text: str) -> str:
        for number, path in enumerate(paths, start=1):
            text = text.replace(str(path), f"phrase {number}")
        return text

    try:
        report = write()
    except EnrollmentRefusedError as error:
        raise EnrollmentRefusedError(renamed(error.reason), error.findings) from None
    return replace(report, findings=tuple(replace(one, reason=renamed(one.reason)) for one in report.findings))


def _settings(store: Path, name: str, requested: Config | None) -> Config:
    """Return the settings that ``name`` is to be enrolled with; raises as ``enroll`` if that cannot be done."""
    from pipeline.enrollment.arguments import agreed_settings, check_names
    from pipeline.errors import StoreMissingError
    from pipeline.store.store import Store

    try:
        opened = Store(store).load()
    except StoreMissingError:
        opened = None
    check_names(store, opened, {unicodedata.normalize("NFC", name): ()}, add=False)
    return agreed_settings(store, opened, requested)


def _folder_of(name: str, keep: Path) -> Path:
    """Make the speaker's folder in ``keep``; raises InputError if it is not empty or cannot be made."""
    name = unicodedata.normalize("NFC", name)
    if Path(name).name != name or name.startswith("."):
        raise InputError(f"--keep: a speaker's name must not contain / or begin with . to name a folder, got {name!r}")
    make_folder(keep)
    folder = keep / name
    make_folder(folder)
    if any(folder.iterdir()):
        raise InputError(f"{folder}: --keep overwrites nothing, and this folder is not empty; name another DIR")
    return folder


def prompts(source: random.Random | None = None) -> Iterator[str]:
    """Yield phrases such as "36 45 81" without end.

    All 72 numbers are used once before any is repeated, in an order drawn from ``source`` (None: the system's
    randomness).
    """
    source = random.SystemRandom() if source is None else source
    while True:
        deck = [10 * tens + ones for tens in range(2, 10) for ones in range(1, 10)]
        source.shuffle(deck)
        for at in range(0, len(deck), _NUMBERS):
            yield " ".join(map(str, deck[at : at + _NUMBERS]))


class PhraseRecorder:
    """Recorder of one phrase at ``rate`` Hz, until it is ``over``."""

    def __init__(self, settings: Config, rate: int) -> None:
        from pipeline.features.frontend import FrontEnd

        self.meter = LevelMeter(settings.checks.max_clipped)
        self.speech_seconds = 0.0
        self._front_end = FrontEnd(settings.features, rate, where="recording")
        self._step = settings.features.step_seconds
        self._rate = rate
        self._blocks: list[Any] = []
        self._since_speech = 0.0

    @property
    def seconds(self) -> float:
        """Return the duration of the audio so far."""
        return self._front_end.samples / self._rate

    @property
    def over(self) -> bool:
        """Return True once the phrase has ended: enough speech and a pause, or too long a wait."""
        spoken = self.speech_seconds >= _LEAST_SPEECH and self._since_speech >= _PAUSE
        return spoken or self.seconds >= _MOST_SECONDS

    def push(self, samples: Any) -> None:
        """Add mono ``samples`` (n,), full scale 1; raises AudioError for anything else."""
        frames = len(self._front_end.push(samples).vectors)
        self.meter.push(samples)
        self._blocks.append(samples.copy())
        self.speech_seconds += frames * self._step
        self._since_speech = 0.0 if frames else self._since_speech + len(samples) / self._rate

    def finish(self) -> tuple[Any, float, str]:
        """Return mono samples (n,), the level of their loudest tenth of a second in dB, and a fault, empty if good."""
        import numpy as np

        samples = np.concatenate([np.empty(0), *self._blocks])
        size = max(1, self._rate // 10)
        power = max((float((samples[at : at + size] ** 2).mean()) for at in range(0, len(samples), size)), default=0.0)
        level_db = 10.0 * math.log10(power) if power > 0.0 else -math.inf
        if self.speech_seconds > 0.0 and level_db < QUIET_DB:
            return samples, level_db, "too quiet"
        if self.speech_seconds < _LEAST_SPEECH:
            return samples, level_db, "no speech detected"
        return samples, level_db, "too loud: clipped" if self.meter.clipped else ""


def _record_phrases(settings: Config, rate: int, blocks: Blocks, seconds: float, name: str) -> tuple[list[Any], float]:
    """Prompt for phrases until ``seconds`` of good speech are recorded or the audio ends; return samples and speech."""
    good: list[Any] = []
    recorded = 0.0
    print_note(f"{name}: read each line aloud, then pause. {seconds:g} s of speech are needed.")
    for prompt in prompts():
        print_note(f"  say:  {prompt}")
        recorder = PhraseRecorder(settings, rate)
        with live_line() as show:
            for block in blocks:
                recorder.push(block)
                total = recorded + recorder.speech_seconds
                show(f"{recorder.meter}  {total:5.1f} s of speech, {max(0.0, seconds - total):.1f} s to go")
                if recorder.over:
                    break
        samples, level_db, fault = recorder.finish()
        if not fault:
            good.append(samples)
            recorded += recorder.speech_seconds
            to_go = max(0.0, seconds - recorded)
            print_note(f"  good: {recorder.speech_seconds:.1f} s of speech at {level_db:.0f} dB; {to_go:.1f} s to go")
        elif recorder.over:
            print_note(f"  {fault}; please repeat")
        if not recorder.over or recorded >= seconds:
            break
    return good, recorded


@contextmanager
def _files(phrases: list[Any], rate: int, keep: Path | None) -> Iterator[list[Path]]:
    """Write the phrases to WAV files in ``keep``, or in a folder that is deleted afterwards."""
    import tempfile

    import soundfile

    with tempfile.TemporaryDirectory(prefix="voiceclaim-") as work:
        folder = Path(work) if keep is None else keep
        paths = [folder / f"phrase_{number:03d}.wav" for number in range(len(phrases))]
        for path, samples in zip(paths, phrases, strict=True):
            soundfile.write(path, samples, rate, subtype="FLOAT")
        yield paths
