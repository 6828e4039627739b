// SPDX-License-Identifier: Apache-2.0
// A program of the CUDA runtime under a budget of 256 MiB.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void add(int *p, int n) {
    p[threadIdx.x] += n;
}

static int fail(const char *what, cudaError_t e) {
    printf("%s: %s\n", what, cudaGetErrorString(e));
    return 1;
}

int main() {
    size_t room, total;
    int *p, *more, host[32];
    cudaError_t e = cudaMalloc(&p, sizeof host);
    if (e || (e = cudaMemset(p, 0, sizeof host)))
        return fail("cudaMalloc", e);
    add<<<1, 32>>>(p, 7);
    if ((e = cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost)) || host[31] != 7)
        return fail("add", e);
    if ((e = cudaMemGetInfo(&room, &total)) || total != (256u << 20))
        return fail("cudaMemGetInfo", e);
    if ((e = cudaMalloc(&more, 256u << 20)) != cudaErrorMemoryAllocation)
        return fail("more than the budget", e);
    cudaGetLastError();
    if ((e = cudaMallocAsync(&more, 64u << 20, 0)) || (e = cudaFreeAsync(more, 0)) ||
        (e = cudaDeviceSynchronize()))
        return fail("cudaMallocAsync", e);
    if ((e = cudaDeviceReset()) || (e = cudaMalloc(&p, 200u << 20)))
        return fail("after a reset", e);
    printf("all well\n");
    return 0;
}
