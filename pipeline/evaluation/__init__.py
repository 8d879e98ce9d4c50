"""Evaluation: trial lists and score files to metrics, figures and reports."""

import lazy_loader

FORMATS = ("csv", "kaldi", "nist", "parquet", "spk2utt", "voiceclaim", "voxceleb")
"""Formats of trial lists, keys and score files."""

WRITTEN = ("csv", "kaldi", "nist", "parquet", "voiceclaim")
"""Formats that they are written in."""

# Names are imported at first use, so that the command line's help loads no numpy.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
