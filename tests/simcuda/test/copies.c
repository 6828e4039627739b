// SPDX-License-Identifier: Apache-2.0
//
// Copies and fills move the right bytes, and refuse ranges outside a block.

#include "testlib.h"

enum { N = 1 << 20 };

static unsigned char in[N], out[N];

static void linear(void) {
    CUdeviceptr a, b;
    CHECK(cuMemAlloc(&a, N), 0);
    CHECK(cuMemAlloc(&b, N), 0);
    CHECK(cuMemcpyHtoD(a, in, N), 0);
    CHECK(CU(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr, size_t)(b, a, N), 0);
    CHECK(cuMemcpyDtoH(out, b, N), 0);
    CHECK(memcmp(in, out, N), 0);
    CHECK(cuMemcpyDtoH(out, b + 100, 1000), 0); // from inside
    CHECK(memcmp(in + 100, out, 1000), 0);
    CHECK(cuMemcpyHtoD(a, in, N + 1), 1);
    CHECK(cuMemcpyHtoD(a + 1, in, N), 1);
    CHECK(cuMemcpyDtoH(out, a + N - 1, 2), 1);
    CHECK(cuMemcpyHtoD(a, in, 0), 0);
    CHECK(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)out, in, 1), 1); // no device memory
    CHECK(CU(cuMemcpy, CUdeviceptr, CUdeviceptr, size_t)((CUdeviceptr)(uintptr_t)out, a, N), 0);
    CHECK(memcmp(in, out, N), 0);
    CHECK(cuMemFree(b), 0);
    CHECK(cuMemcpyDtoH(out, b, 1), 1); // the block was freed
    CHECK(cuMemFree(a), 0);
}

static void asynchronous(void) {
    CUdeviceptr d;
    CUstream s;
    void *h;
    struct gate g;
    CHECK(CU(cuMemHostAlloc, void **, size_t, unsigned)(&h, N, 0), 0);
    CHECK(cuMemAlloc(&d, N), 0);
    CHECK(cuStreamCreate(&s, 1), 0);
    memset(h, 1, N);
    gate_put(&g, s);
    CHECK(CU(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, size_t, CUstream)(d, h, N, s), 0);
    memset(h, 2, N); // before the copy runs: page-locked memory is read later
    gate_open(&g);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(cuMemcpyDtoH(out, d, N), 0);
    CHECK(out[0] == 2 && out[N - 1] == 2, 1);
    CHECK(CU(cuMemsetD8Async, CUdeviceptr, unsigned char, size_t, CUstream)(d, 9, N, s), 0);
    CHECK(CU(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, size_t, CUstream)(out, d, N, s), 0);
    CHECK(out[0] == 9 && out[N - 1] == 9, 1); // pageable: done when it returns
    CHECK(cuStreamDestroy(s), 0);
    CHECK(cuMemFree(d), 0);
    CHECK(CU(cuMemFreeHost, void *)(h), 0);
}

static void rectangles(void) {
    enum { W = 100, H = 50 };
    CUdeviceptr d;
    size_t pitch;
    CHECK(CU(cuMemAllocPitch_v2, CUdeviceptr *, size_t *, size_t, size_t, unsigned)(&d, &pitch, W,
                                                                                    H, 4),
          0);
    CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = W,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = d,
                        .dstPitch = pitch,
                        .WidthInBytes = W,
                        .Height = H};
    CHECK(CU(cuMemcpy2D_v2, const CUDA_MEMCPY2D *)(&up), 0);
    CUDA_MEMCPY2D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = d,
                          .srcPitch = pitch,
                          .srcXInBytes = 10,
                          .srcY = 5,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = W,
                          .WidthInBytes = W - 10,
                          .Height = H - 5};
    CHECK(CU(cuMemcpy2DUnaligned_v2, const CUDA_MEMCPY2D *)(&down), 0);
    for (int y = 0; y < H - 5; y++)
        CHECK(memcmp(out + y * W, in + (y + 5) * W + 10, W - 10), 0);
    up.Height = H + 1;
    CHECK(CU(cuMemcpy2D_v2, const CUDA_MEMCPY2D *)(&up), 1);
    up.Height = H;
    up.dstPitch = W - 1;
    CHECK(CU(cuMemcpy2D_v2, const CUDA_MEMCPY2D *)(&up), 1);
    up.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    CHECK(CU(cuMemcpy2D_v2, const CUDA_MEMCPY2D *)(&up), 400);
    CHECK(cuMemFree(d), 0);
}

static void arrays(void) {
    enum { W = 32, H = 16, BYTES = W * H * 4 };
    CUDA_ARRAY_DESCRIPTOR d = {W, H, 0x20, 1}; // floats
    CUDA_ARRAY3D_DESCRIPTOR m = {.Width = 4, .Height = 4, .Format = 1, .NumChannels = 4};
    CUarray a, level;
    CUmipmappedArray mips;
    size_t before = free_bytes();
    CHECK(CU(cuArrayCreate_v2, CUarray *, const CUDA_ARRAY_DESCRIPTOR *)(&a, &d), 0);
    CHECK(before - free_bytes(), BYTES);
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = in,
                       .srcPitch = W * 4,
                       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                       .dstArray = a,
                       .WidthInBytes = W * 4,
                       .Height = H};
    CHECK(CU(cuMemcpy2D_v2, const CUDA_MEMCPY2D *)(&c), 0);
    CUDA_MEMCPY2D back = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = a,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = W * 4,
                          .WidthInBytes = W * 4,
                          .Height = H};
    memset(out, 0, BYTES);
    CHECK(CU(cuMemcpy2D_v2, const CUDA_MEMCPY2D *)(&back), 0);
    CHECK(memcmp(in, out, BYTES), 0);
    c.dstY = 1;
    CHECK(CU(cuMemcpy2D_v2, const CUDA_MEMCPY2D *)(&c), 1);
    CHECK(CU(cuArrayDestroy, CUarray)(a), 0);
    CHECK(CU(cuArrayDestroy, CUarray)(a), 400);
    CHECK(free_bytes(), before);
    CHECK(CU(cuMipmappedArrayCreate, CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *,
             unsigned)(&mips, &m, 9),
          0);
    CHECK(before - free_bytes(), (16 + 4 + 1) * 4);
    CHECK(CU(cuMipmappedArrayGetLevel, CUarray *, CUmipmappedArray, unsigned)(&level, mips, 2), 0);
    CHECK(CU(cuMipmappedArrayGetLevel, CUarray *, CUmipmappedArray, unsigned)(&level, mips, 3), 1);
    CHECK(CU(cuArrayDestroy, CUarray)(level), 400);
    CHECK(CU(cuMipmappedArrayDestroy, CUmipmappedArray)(mips), 0);
    CHECK(free_bytes(), before);
    CHECK(CU(cuArrayCreate_v2, CUarray *, const CUDA_ARRAY_DESCRIPTOR *)(NULL, &d), 1);
    d.NumChannels = 3;
    CHECK(CU(cuArrayCreate_v2, CUarray *, const CUDA_ARRAY_DESCRIPTOR *)(&a, &d), 1);
}

static void fills(void) {
    CUdeviceptr d;
    unsigned words[64];
    CHECK(cuMemAlloc(&d, sizeof words), 0);
    CHECK(CU(cuMemsetD32_v2, CUdeviceptr, unsigned, size_t)(d, 0x12345678, 64), 0);
    CHECK(CU(cuMemsetD16_v2, CUdeviceptr, unsigned short, size_t)(d + 4, 0xabcd, 1), 0);
    CHECK(cuMemcpyDtoH(words, d, sizeof words), 0);
    CHECK(words[0], 0x12345678);
    CHECK(words[1], 0x1234abcd);
    CHECK(words[63], 0x12345678);
    CHECK(CU(cuMemsetD32_v2, CUdeviceptr, unsigned, size_t)(d, 0, 65), 1);
    CHECK(CU(cuMemsetD32_v2, CUdeviceptr, unsigned, size_t)(d + 2, 0, 1), 1);
    CHECK(CU(cuMemsetD2D8_v2, CUdeviceptr, size_t, unsigned char, size_t, size_t)(d, 64, 0, 2, 4),
          0);
    CHECK(cuMemcpyDtoH(words, d, sizeof words), 0);
    CHECK(words[16], 0x12340000);
    CHECK(words[17], 0x12345678);
    CHECK(cuMemFree(d), 0);
}

// Small blocks share pages: freeing one leaves its neighbours' bytes alone.
static void neighbours(void) {
    enum { BLOCKS = 64, SIZE = 512 };
    CUdeviceptr d[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(cuMemAlloc(&d[i], SIZE), 0);
        CHECK(CU(cuMemsetD8_v2, CUdeviceptr, unsigned char, size_t)(d[i], (unsigned char)i, SIZE),
              0);
    }
    for (int i = 0; i < BLOCKS; i += 2)
        CHECK(cuMemFree(d[i]), 0);
    for (int i = 1; i < BLOCKS; i += 2) {
        CHECK(cuMemcpyDtoH(out, d[i], SIZE), 0);
        CHECK(out[0] == i && out[SIZE - 1] == i, 1);
        CHECK(cuMemFree(d[i]), 0);
    }
}

int main(void) {
    for (int i = 0; i < N; i++)
        in[i] = (unsigned char)(i * 31 + i / 251);
    open_device(0);
    linear();
    asynchronous();
    rectangles();
    arrays();
    fills();
    neighbours();
    return 0;
}
