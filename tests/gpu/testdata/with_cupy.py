# SPDX-License-Identifier: Apache-2.0
"""Computes with CuPy within a budget: with_cupy.py MODE BYTES TIGHT.

MODE is CuPy's allocator (managed or async; any other word: CuPy's default), and BYTES is the
budget. TIGHT is "true" if the budget is too small for the arrays.
"""
import sys

import cupy

mode, budget, tight = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "true"
if mode == "managed":
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)
if mode == "async":
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)


def hold():
    cupy.cuda.Device().synchronize()
    print("holding", flush=True)
    sys.stdin.readline()


def refused(size):
    try:
        cupy.empty(size, dtype=cupy.uint8)
        sys.exit("more than the budget was granted")
    except cupy.cuda.memory.OutOfMemoryError as refusal:
        print(str(refusal)[:200])


free, total = cupy.cuda.runtime.memGetInfo()
assert total == budget, (free, total)
if tight:
    refused(256 << 20)
    a = cupy.arange(1 << 20, dtype=cupy.float32)
    assert float(a[-1]) == float((1 << 20) - 1)
    hold()
    print("all well")
    sys.exit()
a = cupy.arange(64 << 20, dtype=cupy.float32)
assert float(a[(1 << 24) - 1]) == float((1 << 24) - 1)  # above this a float cannot represent odd numbers
refused(budget)
del a
b = cupy.full(budget // 4, 7, dtype=cupy.uint8)
assert int(b.sum(dtype=cupy.int64)) == 7 * (budget // 4)
hold()
print("all well")
