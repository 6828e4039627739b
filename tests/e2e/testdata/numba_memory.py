"""Unmodified numba: copies there and back, streams up to the cap and one more,
memory up to the budget and one byte more. Prints one line for each result.

usage: numba_memory.py STREAMS_CAP BUDGET_BYTES
"""

import sys

import numpy
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

OUT_OF_MEMORY = 2


def main(cap, budget):
    there = numpy.arange(100_000, dtype=numpy.float64)
    device = cuda.to_device(there)
    print("copy", "right" if (device.copy_to_host() == there).all() else "wrong")

    free, total = cuda.current_context().get_memory_info()
    print("total", total)
    print("free", free)

    streams = [cuda.stream() for _ in range(cap)]
    handles = {int(stream.handle.value or 0) for stream in streams}
    print("streams", len(handles), "default" if handles & {0, 1, 2} else "own")
    try:
        cuda.stream()
        print("over the cap: granted")
    except CudaAPIError as error:
        print("over the cap: refused with", error.code)

    rest = budget - there.nbytes
    block = cuda.device_array(rest, dtype=numpy.uint8)
    print("to the byte: granted", block.nbytes)
    try:
        cuda.device_array(1, dtype=numpy.uint8)
        print("one more: granted")
    except CudaAPIError as error:
        print("one more: refused with", error.code)
    print("done", flush=True)
    sys.stdin.read()


main(int(sys.argv[1]), int(sys.argv[2]))
