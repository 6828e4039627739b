"""Frees an array, which numba keeps until the driver has no memory, and makes another one. Prints a line for each.

usage: NUMBA_CUDA_MAX_PENDING_DEALLOCS_RATIO=1 numba_cache.py FREED_BYTES BYTES
"""

import sys

import numpy
from numba import cuda


def main(freed, wanted):
    first = cuda.device_array(freed, dtype=numpy.uint8)
    del first
    print("freed", freed)
    second = cuda.device_array(wanted, dtype=numpy.uint8)
    print("has", second.nbytes)
    sys.stdin.read()


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    main(int(sys.argv[1]), int(sys.argv[2]))
