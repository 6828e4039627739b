# SPDX-License-Identifier: Apache-2.0
"""Starts a notebook server and a kernel, allocates GPU memory in the kernel, and waits to be killed.

Prints the PID of the kernel when the kernel holds the memory.
"""

import signal

from jupyter_client.manager import start_new_kernel

TAKE = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
context, block = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(3 << 30)) == 0
print(os.getpid())
"""

manager, client = start_new_kernel(kernel_name="gpu", startup_timeout=600)
client.execute_interactive(
    TAKE,
    output_hook=lambda message: message["msg_type"] == "stream"
    and print(message["content"]["text"].strip(), flush=True),
    timeout=600,
)
signal.pause()
