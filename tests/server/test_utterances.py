"""Files of the utterances of a stream: exact samples, and descriptors that run out."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import soundfile

from pipeline.audio.streams import PcmFormat
from pipeline.server.messages import service_error
from pipeline.server.settings import Settings
from pipeline.server.utterances import UtteranceFiles


@pytest.mark.parametrize(("encoding", "kind"), [("s16le", "<i2"), ("f32le", "<f4")])
def test_the_file_of_an_utterance_holds_the_samples_that_were_sent_however_they_are_cut(encoding, kind, tmp_path):
    sent = np.arange(-(2**15), 2**15).astype(kind)
    if kind == "<f4":
        bits = np.random.default_rng(0).integers(0, 2**32, 50_000, dtype=np.uint32).view("<f4")
        sent = bits[np.abs(bits) < 2.0**31]  # finite, subnormal ones among them
    data, settings = sent.tobytes(), Settings(tmp_path / "s.store")
    files = UtteranceFiles(settings, tmp_path, None, PcmFormat(16_000, encoding=encoding))
    for start in range(0, len(data), 9_999):
        files.push(data[start : start + 9_999])
    files.finish()
    (path,) = files.recordings()
    assert soundfile.read(path, dtype=sent.dtype.name)[0].astype(kind).tobytes() == data


def test_an_utterance_for_which_no_file_can_be_opened_is_not_said_to_have_no_room(tmp_path):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with closing(UtteranceFiles(Settings(tmp_path / "s.store"), tmp_path, None, PcmFormat(16_000))) as files:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
            with pytest.raises(OSError) as refused:
                files.next_utterance()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert service_error(refused.value).status == 503
