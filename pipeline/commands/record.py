"""The command `voiceclaim record`: a person enrolled by reading prompts aloud."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.commands.listening import Blocks, microphone, pipe
from pipeline.commands.shared import Jobs, Json
from pipeline.errors import NotEnoughSpeechError, SpeakerExistsError
from pipeline.live_line import LevelMeter, LiveLine
from pipeline.terminal import bars, cores, plain, print_json, say

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.phrase_recorder import Phrase


def record(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who is enrolled.")],
    audio: Annotated[str, typer.Argument(metavar="[-]", help="A pipe in the place of the microphone.")] = "",
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="Folder of the speaker store, made if new.")] = (
        ...  # type: ignore[assignment]  # typer's way to ask for it
    ),
    seconds: Annotated[float, typer.Option(min=1, metavar="S", help="Speech to collect.")] = 20.0,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which microphone: a number, or part of its name.")
    ] = None,
    raw: Annotated[
        str | None, typer.Option(metavar="RATE[:CHANNELS[:ENCODING]]", help="The pipe is raw audio: 16000, ...")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Keep the recordings there; else they are deleted.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="TOML settings of a new store, or the name of a set.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting of a new store.")
    ] = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Enroll NAME at the microphone: read the digits aloud that are shown, phrase by phrase.

    A phrase is over at a pause. A line shows the level, and how much speech is still needed; a phrase that is clipped
    or too quiet does not count, and is asked for again. Ctrl-C ends the recording early.

    \b
    Example: voiceclaim record anna --store speakers.store
    Example: arecord -f S16_LE -r 16000 | voiceclaim record anna --store speakers.store -
    """
    from pipeline.corpus import Utterance
    from pipeline.enrollment import enroll
    from pipeline.store import SpeakerStore

    if audio not in {"", "-"}:
        raise typer.BadParameter(f"AUDIO must be - for a pipe, or left out for the microphone, got {audio!r}")
    settings, asked = _settings(store, config, override)
    if (store / "manifest.json").exists():
        taken = {speaker.name for speaker in SpeakerStore.open(store).speakers}
        if name in taken:
            raise SpeakerExistsError(f"{store}: enrolled already: {name!r}; remove them first")
    source = pipe(raw) if audio == "-" else microphone(device)
    with source as (rate, blocks):
        phrases = _spoken(settings, rate, blocks, seconds, name)
    found, least = sum(phrase.speech_seconds for phrase in phrases), settings.codebook.min_seconds
    if found < least:
        raise NotEnoughSpeechError(f"recording of {name!r}", found=found, needed=least)
    with _files(phrases, rate, keep) as paths, bars(quiet=as_json) as progress:
        utterances = [Utterance(name, path) for path in paths]
        report = enroll(store, {name: utterances}, asked, jobs=jobs or cores(), progress=progress)
    enrolled = report.enrolled[0]
    if as_json:
        print_json(
            {"store": str(store), "name": name, "phrases": len(phrases), "speech_seconds": enrolled.seconds,
             "asked_seconds": seconds, "elapsed_seconds": report.elapsed_seconds}
        )  # fmt: skip
        return
    say(f"{plain(name)}: enrolled with {enrolled.seconds:.1f} s of speech in {len(phrases)} phrases -> {store}")


def _settings(store: Path, config: str | None, override: list[str] | None) -> tuple[Config, Config | None]:
    """The settings that hold, and those that were asked for (None: none)."""
    from pipeline.config import Config, load_config
    from pipeline.resources import find_config
    from pipeline.store import SpeakerStore

    asked = load_config(find_config(config) if config else None, override or ()) if config or override else None
    if (store / "manifest.json").exists():
        return SpeakerStore.open(store).config, asked
    return asked or Config(), asked


def _spoken(settings: Config, rate: int, blocks: Blocks, seconds: float, name: str) -> list[Phrase]:
    """Prompt for phrases until ``seconds`` of good speech are there, or the audio ends."""
    from pipeline.phrase_recorder import PhraseRecorder, Quality
    from pipeline.prompts import phrases as prompts

    meter, line = LevelMeter(rate), LiveLine()
    kept: list[Phrase] = []
    _tell(f"{plain(name)}: read each line aloud, then pause. {seconds:g} s of speech are needed.")
    for prompt in prompts():
        _tell(f"  say:  {prompt}")
        recorder, had = PhraseRecorder(settings.features, rate), sum(phrase.speech_seconds for phrase in kept)
        ended = True
        for block in blocks:
            recorder.push(block)
            meter.push(block)
            needed = max(0.0, seconds - had - recorder.speech_seconds)
            line.show(f"{meter}  {had + recorder.speech_seconds:5.1f} s of speech, {needed:.1f} s to go")
            if recorder.over:
                ended = False
                break
        line.clear()
        phrase = recorder.finish()
        had += phrase.speech_seconds if phrase.quality is Quality.GOOD else 0.0
        if phrase.quality is Quality.GOOD:
            kept.append(phrase)
            to_go = max(0.0, seconds - had)
            _tell(f"  good: {phrase.speech_seconds:.1f} s of speech at {phrase.level_db:.0f} dB; {to_go:.1f} s to go")
        elif not ended:
            _tell(f"  {phrase.quality}; once more")
        if ended or had >= seconds:
            return kept
    raise AssertionError("prompts never end")


@contextmanager
def _files(phrases: list[Phrase], rate: int, keep: Path | None) -> Iterator[list[Path]]:
    """The phrases as WAV files, in ``keep`` or in a folder that is deleted afterwards."""
    import tempfile

    import soundfile

    with tempfile.TemporaryDirectory(prefix="voiceclaim-") as work:
        folder = Path(work) if keep is None else keep
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"phrase_{number:03d}.wav" for number in range(len(phrases))]
        for path, phrase in zip(paths, phrases, strict=True):
            soundfile.write(path, phrase.samples, rate, subtype="FLOAT")
        yield paths


def _tell(text: str) -> None:
    """Say something to the person, beside what programs read."""
    if sys.stderr is not None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
