"""A test that frees memory, and one that takes none and waits for the end of its input."""

import sys

import numpy
from numba import cuda


def test_frees():
    cuda.device_array(30 << 20, dtype=numpy.uint8)


def test_rests():
    print("\ntests that freed memory are over", flush=True)
    sys.stdin.read()
