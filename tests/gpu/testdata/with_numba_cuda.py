# SPDX-License-Identifier: Apache-2.0
"""numba within a budget: with_numba_cuda.py MODE BYTES."""
import sys

import numpy
from numba import cuda

budget = int(sys.argv[2])
free, total = cuda.current_context().get_memory_info()
assert total == budget, (free, total)


@cuda.jit
def add(x, n):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += n


a = cuda.to_device(numpy.arange(1 << 20, dtype=numpy.int32))
add[4096, 256](a, 7)
assert a.copy_to_host()[5] == 12
try:
    cuda.device_array(budget, dtype=numpy.uint8)
    sys.exit("more than the budget was granted")
except cuda.cudadrv.driver.CudaAPIError as refusal:
    print(str(refusal)[:200])
b = cuda.device_array(budget // 2, dtype=numpy.uint8)
print("all well")
