# SPDX-License-Identifier: Apache-2.0
"""JAX within a budget: with_jax.py MODE BYTES."""
import os
import sys

mode, budget = sys.argv[1], int(sys.argv[2])
if mode == "platform":
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"

import jax
import jax.numpy as jnp

a = jnp.arange(16 << 20, dtype=jnp.float32)
assert float(a[-1]) == float((16 << 20) - 1)
assert float((a.reshape(4096, 4096) @ jnp.eye(4096))[3, 5]) == 3 * 4096 + 5
try:
    jnp.zeros(budget, dtype=jnp.uint8).block_until_ready()
    sys.exit("more than the budget was granted")
except Exception as refusal:
    assert "RESOURCE_EXHAUSTED" in str(refusal), refusal
    print(str(refusal).splitlines()[0][:200])
assert float((a + 1)[0]) == 1.0
print(jax.devices()[0].memory_stats())
print("all well")
