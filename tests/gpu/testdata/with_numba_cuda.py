# SPDX-License-Identifier: Apache-2.0
"""Computes with numba within a budget: with_numba_cuda.py MODE BYTES TIGHT.

MODE is not used, and BYTES is the budget. TIGHT is "true" if the budget is too small for the
arrays.
"""
import sys

import numpy
from numba import cuda

budget, tight = int(sys.argv[2]), sys.argv[3] == "true"
free, total = cuda.current_context().get_memory_info()
assert total == budget, (free, total)


@cuda.jit
def add(x, n):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += n


def refused(size):
    try:
        cuda.device_array(size, dtype=numpy.uint8)
        sys.exit("more than the budget was granted")
    except cuda.cudadrv.driver.CudaAPIError as refusal:
        print(str(refusal)[:200])


if tight:
    refused(256 << 20)
a = cuda.to_device(numpy.arange(1 << 20, dtype=numpy.int32))
add[4096, 256](a, 7)
assert a.copy_to_host()[5] == 12
refused(budget)
b = cuda.device_array(budget // 2, dtype=numpy.uint8)
print("holding", flush=True)
sys.stdin.readline()
print("all well")
