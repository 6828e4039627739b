# SPDX-License-Identifier: Apache-2.0
"""CuPy within a budget: with_cupy.py MODE BYTES."""
import sys

import cupy

mode, budget = sys.argv[1], int(sys.argv[2])
if mode == "managed":
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)
if mode == "async":
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)

free, total = cupy.cuda.runtime.memGetInfo()
assert total == budget, (free, total)
a = cupy.arange(64 << 20, dtype=cupy.float32)
assert float(a[-1]) == float((64 << 20) - 1)
try:
    cupy.empty(budget, dtype=cupy.uint8)
    sys.exit("more than the budget was granted")
except cupy.cuda.memory.OutOfMemoryError as refusal:
    print(str(refusal)[:200])
del a
b = cupy.full(budget // 4, 7, dtype=cupy.uint8)
assert int(b.sum(dtype=cupy.int64)) == 7 * (budget // 4)
print("all well")
