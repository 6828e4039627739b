# SPDX-License-Identifier: Apache-2.0
"""Computes with PyTorch within a budget: with_torch.py MODE BYTES TIGHT.

MODE is PyTorch's allocator (expandable, async or caching, which is the default), or graphs: the
default, and a CUDA graph besides. BYTES is the budget. TIGHT is "true" if the budget is too small
for the tensors.
"""
import os
import sys

mode, budget, tight = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "true"
backend = {"expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
if mode in backend:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = backend[mode]

import torch


def hold():
    torch.cuda.synchronize()
    print("holding", flush=True)
    sys.stdin.readline()


def refused(size):
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
        sys.exit("more than the budget was granted")
    except torch.cuda.OutOfMemoryError as refusal:
        print(str(refusal).splitlines()[0][:200])


free, total = torch.cuda.mem_get_info()
assert total == budget, (free, total)
if tight:
    refused(256 << 20)
    x = torch.ones(1 << 20, device="cuda")
    assert float(x.sum()) == float(1 << 20)
    hold()
    print("all well")
    sys.exit()
a = torch.arange(64 << 20, dtype=torch.float32, device="cuda")
assert float(a[(1 << 24) - 1]) == float((1 << 24) - 1)  # above this a float cannot represent odd numbers
b = (a.view(8192, 8192)[:1024] @ torch.eye(8192, device="cuda"))[3, 5]
assert float(b) == float(a[3 * 8192 + 5])
refused(budget)
del a
torch.cuda.empty_cache()
streams = [torch.cuda.Stream() for _ in range(64)]
for stream in streams:
    with torch.cuda.stream(stream):
        torch.ones(1 << 20, device="cuda").sum()
torch.cuda.synchronize()
if mode == "graphs":
    x = torch.ones(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
    for _ in range(10):
        graph.replay()
    torch.cuda.synchronize()
    assert float(y[7]) == 2.0
c = torch.full((budget // 2,), 7, dtype=torch.uint8, device="cuda")
assert int(c[-1]) == 7
hold()
print("reserved", torch.cuda.memory_reserved())
print("all well")
