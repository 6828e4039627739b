# SPDX-License-Identifier: Apache-2.0
"""Opens a notebook's kernel, as a notebook server does, and runs cells in it."""

from jupyter_client.manager import start_new_kernel

SETUP = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, block = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
def take(size):
    print(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size)))
"""

manager, client = start_new_kernel(kernel_name="gpu", startup_timeout=600)


def cell(code):
    """Returns what a cell prints, or the name of the exception that ends it."""
    printed = []

    def hook(message):
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, output_hook=hook, timeout=600)
    content = reply["content"]
    return content["ename"] if content["status"] == "error" else "".join(printed).strip()


for _ in range(2):  # again after a restart, which must have freed all memory
    print(cell(SETUP))
    print(cell("take(3 << 30)"), cell("take(2 << 30)"), cell("take(1 << 30)"), flush=True)
    print(cell("import os, signal; os.kill(os.getpid(), signal.SIGINT); signal.pause()"), flush=True)
    manager.restart_kernel(now=True)
    client.wait_for_ready(timeout=600)
client.stop_channels()
manager.shutdown_kernel(now=True)
print("over")
