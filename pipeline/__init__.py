"""Voiceclaim: enroll speakers from audio, then verify, live or from files, that a speaker is who they claim to be.

The public names are listed in ``__init__.pyi`` and loaded when first used, so that importing the package is quick.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
