"""Memory that claims take again and again is not taken from the system every time."""

import subprocess
import sys

import pytest

ROUNDS = """
import resource, sys
import numpy as np
import pipeline

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        arrays = [np.ones(2**18) for _ in range(6)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

pipeline.Store(sys.argv[1]).load()
faults()
print(faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a thing of glibc")
def test_once_a_store_is_loaded_arrays_come_from_memory_that_was_freed(store):
    done = subprocess.run([sys.executable, "-c", ROUNDS, store], capture_output=True, text=True, check=True)
    taken_anew = 10 * 6 * 2**21 / 4096  # pages of 4 KiB
    assert int(done.stdout) < 0.01 * taken_anew
