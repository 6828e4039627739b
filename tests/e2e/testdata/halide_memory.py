"""Unmodified Halide: its runtime is compiled when it is first used, and finds the driver's functions
by itself. A buffer goes to the device and comes back. Prints one line for each result.

usage: halide_memory.py BYTES
"""

import sys

import halide
import numpy


def main(count):
    target = halide.get_host_target().with_feature(halide.TargetFeature.CUDA)
    there = numpy.arange(count, dtype=numpy.uint8)
    want = int(there.sum())
    buffer = halide.Buffer(there)
    print("malloc", buffer.device_malloc(target), flush=True)
    buffer.set_host_dirty()
    print("up", buffer.copy_to_device(target))
    there[:] = 0
    buffer.set_device_dirty()
    print("down", buffer.copy_to_host())
    print("copy", "right" if int(there.sum()) == want else "wrong")
    print("done", flush=True)
    sys.stdin.readline()
    print("free", buffer.device_free())


main(int(sys.argv[1]))
