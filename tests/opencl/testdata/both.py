# SPDX-License-Identifier: Apache-2.0
# Allocates memory of one device by CUDA, and by the OpenCL library that the argument names. Prints the
# status of each allocation after the first, and the free memory by CUDA.
import ctypes
import sys

cuda, opencl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
opencl.clCreateContext.restype = opencl.clCreateBuffer.restype = ctypes.c_void_p
context, address, room, total = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(10 << 20)) == 0

devices, status = (ctypes.c_void_p * 2)(), ctypes.c_int()
assert opencl.clGetDeviceIDs(None, ctypes.c_uint64(0xFFFFFFFF), 2, devices, None) == 0
of = opencl.clCreateContext(None, 1, devices, None, None, ctypes.byref(status))
assert of and status.value == 0


def buffer(size):
    made = opencl.clCreateBuffer(ctypes.c_void_p(of), ctypes.c_uint64(1), ctypes.c_size_t(size), None, ctypes.byref(status))
    print("buffer", bool(made), status.value)


buffer(20 << 20)
buffer((34 << 20) + 1)
assert cuda.cuMemGetInfo_v2(ctypes.byref(room), ctypes.byref(total)) == 0
print("free", room.value)
buffer(34 << 20)
print("alloc", cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1)), flush=True)
sys.stdin.read()
