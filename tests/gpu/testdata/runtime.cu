// SPDX-License-Identifier: Apache-2.0
// runtime BYTES: a program of the CUDA runtime that checks its budget of BYTES. An allocation of
// 200 MiB must be refused exactly if the budget is smaller; the program goes on in both cases.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__global__ void add(int *p, int n) {
    p[threadIdx.x] += n;
}

static int fail(const char *what, cudaError_t e) {
    printf("%s: %s\n", what, cudaGetErrorString(e));
    return 1;
}

static const size_t needed = 200u << 20;

int main(int argc, char **argv) {
    size_t budget = argc > 1 ? strtoull(argv[1], nullptr, 10) : 0, room, total;
    int *p, *more, host[32];
    cudaError_t e = cudaMalloc(&p, sizeof host);
    if (e || (e = cudaMemset(p, 0, sizeof host)))
        return fail("cudaMalloc", e);
    add<<<1, 32>>>(p, 7);
    if ((e = cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost)) || host[31] != 7)
        return fail("add", e);
    if ((e = cudaMemGetInfo(&room, &total)) || total != budget)
        return fail("cudaMemGetInfo", e);
    if ((e = cudaMalloc(&more, budget)) != cudaErrorMemoryAllocation)
        return fail("more than the budget", e);
    cudaGetLastError();
    e = cudaMalloc(&more, needed);
    if (e != (budget < needed ? cudaErrorMemoryAllocation : cudaSuccess))
        return fail("what is needed", e);
    cudaGetLastError();
    if (!e && (e = cudaFree(more)))
        return fail("cudaFree", e);
    if ((e = cudaMallocAsync(&more, 64u << 20, 0)) || (e = cudaFreeAsync(more, 0)) ||
        (e = cudaDeviceSynchronize()))
        return fail("cudaMallocAsync", e);
    if ((e = cudaDeviceReset()) || (e = cudaMalloc(&p, budget - (16u << 20))))
        return fail("after a reset", e);
    printf("all well\n");
    return 0;
}
