# SPDX-License-Identifier: Apache-2.0
"""Computes with JAX within a budget: with_jax.py MODE BYTES TIGHT.

MODE is JAX's way to allocate (preallocate or platform), and BYTES is the budget. TIGHT is "true" if
the budget is too small for the matrices.
"""
import os
import sys

mode, budget, tight = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "true"
if mode == "platform":
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"

import jax
import jax.numpy as jnp

assert jax.devices()[0].platform == "gpu", jax.devices()


def hold():
    print("holding", flush=True)
    sys.stdin.readline()


def refused(size):
    try:
        jnp.zeros(size, dtype=jnp.uint8).block_until_ready()
        sys.exit("more than the budget was granted")
    except Exception as refusal:
        assert "RESOURCE_EXHAUSTED" in str(refusal), refusal
        print(str(refusal).splitlines()[0][:200])


if tight:
    refused(256 << 20)
    x = jnp.arange(1 << 20, dtype=jnp.float32)
    assert float(x[-1]) == float((1 << 20) - 1)
    hold()
    print("all well")
    sys.exit()
a = jnp.arange(16 << 20, dtype=jnp.float32)
assert float(a[-1]) == float((16 << 20) - 1)
# Full precision, because the default rounds to fewer bits than these numbers have.
b = jnp.matmul(a.reshape(4096, 4096), jnp.eye(4096), precision="highest")
assert float(b[3, 5]) == 3 * 4096 + 5
refused(budget)
assert float((a + 1)[0]) == 1.0
hold()
print(jax.devices()[0].memory_stats())
print("all well")
