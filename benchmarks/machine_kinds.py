"""Machine kinds that several benchmarks enroll with."""

from __future__ import annotations

import json

from pipeline.config import Config

NO_REST = f"machines.kinds={json.dumps([kind for kind in Config().machines.kinds if kind != 'one_vs_rest'])}"
"""The default's but one-vs-rest machines, which only BOAR and POAR read."""
