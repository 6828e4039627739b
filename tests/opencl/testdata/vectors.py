# SPDX-License-Identifier: Apache-2.0
# Adds two vectors by pyopencl, then takes memory until it is refused.
import numpy
import pyopencl as cl

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
a = numpy.arange(100_000, dtype=numpy.float32)
b = numpy.arange(100_000, dtype=numpy.float32)[::-1].copy()
flags = cl.mem_flags
a_on = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=a)
b_on = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=b)
sum_on = cl.Buffer(context, flags.WRITE_ONLY, a.nbytes)
program = cl.Program(context, """
__kernel void add(__global const float *a, __global const float *b, __global float *sum) {
    size_t i = get_global_id(0);
    sum[i] = a[i] + b[i];
}""").build()
program.add(queue, a.shape, None, a_on, b_on, sum_on)
total = numpy.empty_like(a)
cl.enqueue_copy(queue, total, sum_on)
print("sum", "right" if (total == a + b).all() else "wrong")
print("memory", context.devices[0].global_mem_size)

held = []
try:
    while True:
        held.append(cl.Buffer(context, flags.READ_WRITE, 1 << 20))
except cl.MemoryError as e:
    print("refused", e.code, "after", len(held))
