# SPDX-License-Identifier: Apache-2.0
"""Takes memory through two copies of OpenCL's loader in one process; the argument is the folder for the second copy.

Prints for each copy the errors of two buffers of 40 MiB.
"""
import ctypes
import shutil
import sys


def loader(path):
    """Returns a function that makes a buffer through the loader at a path, and returns the error."""
    lib = ctypes.CDLL(path)
    lib.clCreateContext.restype = lib.clCreateBuffer.restype = ctypes.c_void_p
    platform, device, error = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    assert lib.clGetPlatformIDs(1, ctypes.byref(platform), None) == 0
    every = ctypes.c_ulong(0xFFFFFFFF)
    assert lib.clGetDeviceIDs(platform, every, 1, ctypes.byref(device), None) == 0
    context = lib.clCreateContext(None, 1, ctypes.byref(device), None, None, ctypes.byref(error))
    assert error.value == 0

    def buffer():
        size = ctypes.c_size_t(40 << 20)
        lib.clCreateBuffer(ctypes.c_void_p(context), ctypes.c_ulong(1), size, None, ctypes.byref(error))
        return error.value

    return buffer


ctypes.CDLL("libOpenCL.so.1")
with open("/proc/self/maps") as maps:
    first = next(line.split()[-1] for line in maps if "/libOpenCL.so" in line)
second = shutil.copy(first, sys.argv[1] + "/libOpenCL.so.1")
for make in [loader(first), loader(second)]:
    print(make(), make())
