// SPDX-License-Identifier: Apache-2.0
// The driver functions that the test programs call, and three ways to find them. The declarations
// are our own, because the tests are built without a CUDA toolkit.
#ifndef CUDRIVER_H
#define CUDRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext;
typedef void *CUstream;
typedef void *CUpool;
typedef void *CUgraph;
typedef void *CUnode;
typedef void *CUexec;
typedef void *CUevent;
typedef void *CUarray;
typedef void *CUmipmap;
typedef int VdpGetProcAddress(uint32_t, uint32_t, void **);

struct cu_ipc_handle {
    unsigned char bytes[64];
};
struct cu_location {
    int type, id;
};

// Parameters: ranges of managed memory, and their locations.
#define CU_RANGES CUdeviceptr *, size_t *, size_t
#define CU_PLACES struct cu_location *, size_t *, size_t

// ROW(symbol, base name, version for cuGetProcAddress, per-thread flag, parameters)
#define CU_FUNCTIONS(ROW)                                                                          \
    ROW(cuInit, cuInit, 2000, 0, (unsigned int))                                                   \
    ROW(cuDeviceGetCount, cuDeviceGetCount, 2000, 0, (int *))                                      \
    ROW(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, 0, (size_t *, CUdevice))                      \
    ROW(cuCtxCreate_v2, cuCtxCreate, 3020, 0, (CUcontext *, unsigned int, CUdevice))               \
    ROW(cuCtxCreate, cuCtxCreate, 2000, 0, (CUcontext *, unsigned int, CUdevice))                  \
    ROW(cuCtxCreate_v3, cuCtxCreate, 11040, 0, (CUcontext *, void *, int, unsigned int, CUdevice)) \
    ROW(cuCtxCreate_v4, cuCtxCreate, 12050, 0, (CUcontext *, void *, unsigned int, CUdevice))      \
    ROW(cuGLCtxCreate, cuGLCtxCreate, 2000, 0, (CUcontext *, unsigned int, CUdevice))              \
    ROW(cuGLCtxCreate_v2, cuGLCtxCreate, 3020, 0, (CUcontext *, unsigned int, CUdevice))           \
    ROW(cuVDPAUCtxCreate, cuVDPAUCtxCreate, 3010, 0,                                               \
        (CUcontext *, unsigned int, CUdevice, uint32_t, VdpGetProcAddress *))                      \
    ROW(cuVDPAUCtxCreate_v2, cuVDPAUCtxCreate, 3020, 0,                                            \
        (CUcontext *, unsigned int, CUdevice, uint32_t, VdpGetProcAddress *))                      \
    ROW(cuCtxDestroy, cuCtxDestroy, 2000, 0, (CUcontext))                                          \
    ROW(cuCtxAttach, cuCtxAttach, 2000, 0, (CUcontext *, unsigned int))                            \
    ROW(cuCtxDetach, cuCtxDetach, 2000, 0, (CUcontext))                                            \
    ROW(cuCtxPushCurrent, cuCtxPushCurrent, 2000, 0, (CUcontext))                                  \
    ROW(cuCtxPopCurrent, cuCtxPopCurrent, 2000, 0, (CUcontext *))                                  \
    ROW(cuCtxPushCurrent_v2, cuCtxPushCurrent, 4000, 0, (CUcontext))                               \
    ROW(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, 0, (CUdevice))                 \
    ROW(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, 0, (CUdevice))                     \
    ROW(cuGetExportTable, cuGetExportTable, 3000, 0, (const void **, const void *))                \
    ROW(cuModuleLoad, cuModuleLoad, 2000, 0, (void **, const char *))                              \
    ROW(cuModuleLoadData, cuModuleLoadData, 2000, 0, (void **, const void *))                      \
    ROW(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, 0,                                           \
        (void **, const void *, unsigned int, int *, void **))                                     \
    ROW(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, 0, (void **, const void *))            \
    ROW(cuModuleUnload, cuModuleUnload, 2000, 0, (void *))                                         \
    ROW(cuModuleGetFunction, cuModuleGetFunction, 2000, 0, (void **, void *, const char *))        \
    ROW(cuModuleGetGlobal_v2, cuModuleGetGlobal, 3020, 0,                                          \
        (CUdeviceptr *, size_t *, void *, const char *))                                           \
    ROW(cuLibraryLoadData, cuLibraryLoadData, 12000, 0,                                            \
        (void **, const void *, int *, void **, unsigned int, int *, void **, unsigned int))       \
    ROW(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000, 0,                                    \
        (void **, const char *, int *, void **, unsigned int, int *, void **, unsigned int))       \
    ROW(cuLibraryUnload, cuLibraryUnload, 12000, 0, (void *))                                      \
    ROW(cuLaunchKernel, cuLaunchKernel, 4000, 0,                                                   \
        (void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,             \
         unsigned int, unsigned int, CUstream, void **, void **))                                  \
    ROW(cuCtxSetLimit, cuCtxSetLimit, 3010, 0, (int, size_t))                                      \
    ROW(cuCtxGetLimit, cuCtxGetLimit, 3010, 0, (size_t *, int))                                    \
    ROW(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, 0, (CUdevice, void *, int))         \
    ROW(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, 0,                            \
        (void **, void *, unsigned int))                                                           \
    ROW(cuGreenCtxCreate, cuGreenCtxCreate, 12040, 0, (void **, void *, CUdevice, unsigned int))   \
    ROW(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, 0, (void *))                                  \
    ROW(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040, 0, (CUcontext *, void *))                     \
    ROW(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050, 0,                                  \
        (CUstream *, void *, unsigned int, int))                                                   \
    ROW(cuCtxDestroy_v2, cuCtxDestroy, 4000, 0, (CUcontext))                                       \
    ROW(cuCtxSetCurrent, cuCtxSetCurrent, 4000, 0, (CUcontext))                                    \
    ROW(cuCtxGetCurrent, cuCtxGetCurrent, 4000, 0, (CUcontext *))                                  \
    ROW(cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000, 0, (CUcontext *))                               \
    ROW(cuCtxSynchronize, cuCtxSynchronize, 2000, 0, (void))                                       \
    ROW(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0, (CUcontext *, CUdevice))      \
    ROW(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, 0, (CUdevice))             \
    ROW(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, 0, (CUdevice))                 \
    ROW(cuMemGetInfo, cuMemGetInfo, 2000, 0, (unsigned int *, unsigned int *))                     \
    ROW(cuDeviceTotalMem, cuDeviceTotalMem, 2000, 0, (unsigned int *, CUdevice))                   \
    ROW(cuMemAlloc, cuMemAlloc, 2000, 0, (uint32_t *, unsigned int))                               \
    ROW(cuMemAllocPitch, cuMemAllocPitch, 2000, 0,                                                 \
        (uint32_t *, unsigned int *, unsigned int, unsigned int, unsigned int))                    \
    ROW(cuMemFree, cuMemFree, 2000, 0, (uint32_t))                                                 \
    ROW(cuStreamDestroy, cuStreamDestroy, 2000, 0, (CUstream))                                     \
    ROW(cuGraphInstantiate, cuGraphInstantiate, 10000, 0,                                          \
        (CUexec *, CUgraph, CUnode *, char *, size_t))                                             \
    ROW(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, 0, (CUcontext))                              \
    ROW(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, 13000, 0, (CUpool *, const void *, int))   \
    ROW(cuMemSetMemPool, cuMemSetMemPool, 13000, 0, (const void *, int, CUpool))                   \
    ROW(cuMemGetMemPool, cuMemGetMemPool, 13000, 0, (CUpool *, const void *, int))                 \
    ROW(cuMemGetInfo_v2, cuMemGetInfo, 3020, 0, (size_t *, size_t *))                              \
    ROW(cuMemAlloc_v2, cuMemAlloc, 3020, 0, (CUdeviceptr *, size_t))                               \
    ROW(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0,                                              \
        (CUdeviceptr *, size_t *, size_t, size_t, unsigned int))                                   \
    ROW(cuMemAllocManaged, cuMemAllocManaged, 6000, 0, (CUdeviceptr *, size_t, unsigned int))      \
    ROW(cuMemAllocAsync, cuMemAllocAsync, 11020, 0, (CUdeviceptr *, size_t, CUstream))             \
    ROW(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, 2, (CUdeviceptr *, size_t, CUstream))        \
    ROW(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 0,                                \
        (CUdeviceptr *, size_t, CUpool, CUstream))                                                 \
    ROW(cuMemFree_v2, cuMemFree, 3020, 0, (CUdeviceptr))                                           \
    ROW(cuMemFreeAsync, cuMemFreeAsync, 11020, 0, (CUdeviceptr, CUstream))                         \
    ROW(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, 2, (CUdeviceptr, CUstream))                    \
    ROW(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020, 2,                           \
        (CUdeviceptr *, size_t, CUpool, CUstream))                                                 \
    ROW(cuMemPoolCreate, cuMemPoolCreate, 11020, 0, (CUpool *, const void *))                      \
    ROW(cuMemPoolDestroy, cuMemPoolDestroy, 11020, 0, (CUpool))                                    \
    ROW(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0, (CUpool, size_t))                              \
    ROW(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, 0, (CUpool, int, void *))             \
    ROW(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, 0, (CUpool, int, void *))             \
    ROW(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, 0, (CUdevice, CUpool))                      \
    ROW(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, 0, (CUpool, const void *, size_t))          \
    ROW(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020, 0,              \
        (void *, CUpool, int, unsigned long long))                                                 \
    ROW(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020, 0,          \
        (CUpool *, void *, int, unsigned long long))                                               \
    ROW(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020, 0,                                  \
        (struct cu_ipc_handle *, CUdeviceptr))                                                     \
    ROW(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020, 0,                                  \
        (CUdeviceptr *, CUpool, struct cu_ipc_handle *))                                           \
    ROW(cuMemAdvise, cuMemAdvise, 8000, 0, (CUdeviceptr, size_t, int, CUdevice))                   \
    ROW(cuMemAdvise_v2, cuMemAdvise, 12020, 0, (CUdeviceptr, size_t, int, struct cu_location))     \
    ROW(cuMemPrefetchAsync, cuMemPrefetchAsync, 8000, 0,                                           \
        (CUdeviceptr, size_t, CUdevice, CUstream))                                                 \
    ROW(cuMemPrefetchAsync_ptsz, cuMemPrefetchAsync, 8000, 2,                                      \
        (CUdeviceptr, size_t, CUdevice, CUstream))                                                 \
    ROW(cuMemPrefetchAsync_v2, cuMemPrefetchAsync, 12020, 0,                                       \
        (CUdeviceptr, size_t, struct cu_location, unsigned int, CUstream))                         \
    ROW(cuMemPrefetchAsync_v2_ptsz, cuMemPrefetchAsync, 12020, 2,                                  \
        (CUdeviceptr, size_t, struct cu_location, unsigned int, CUstream))                         \
    ROW(cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, 13000, 0,                                \
        (CU_RANGES, CU_PLACES, unsigned long long, CUstream))                                      \
    ROW(cuMemPrefetchBatchAsync_ptsz, cuMemPrefetchBatchAsync, 13000, 2,                           \
        (CU_RANGES, CU_PLACES, unsigned long long, CUstream))                                      \
    ROW(cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync, 13000, 0,            \
        (CU_RANGES, CU_PLACES, unsigned long long, CUstream))                                      \
    ROW(cuMemDiscardAndPrefetchBatchAsync_ptsz, cuMemDiscardAndPrefetchBatchAsync, 13000, 2,       \
        (CU_RANGES, CU_PLACES, unsigned long long, CUstream))                                      \
    ROW(cuMemDiscardBatchAsync, cuMemDiscardBatchAsync, 13000, 0,                                  \
        (CU_RANGES, unsigned long long, CUstream))                                                 \
    ROW(cuMemDiscardBatchAsync_ptsz, cuMemDiscardBatchAsync, 13000, 2,                             \
        (CU_RANGES, unsigned long long, CUstream))                                                 \
    ROW(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, 0, (CUcontext, unsigned int))          \
    ROW(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, 0, (CUcontext))                      \
    ROW(cuMemSetAccess, cuMemSetAccess, 10020, 0, (CUdeviceptr, size_t, const void *, size_t))     \
    ROW(cuStreamSynchronize_ptsz, cuStreamSynchronize, 7000, 2, (CUstream))                        \
    ROW(cuEventCreate, cuEventCreate, 2000, 0, (CUevent *, unsigned int))                          \
    ROW(cuEventRecord, cuEventRecord, 2000, 0, (CUevent, CUstream))                                \
    ROW(cuEventSynchronize, cuEventSynchronize, 2000, 0, (CUevent))                                \
    ROW(cuEventDestroy_v2, cuEventDestroy, 4000, 0, (CUevent))                                     \
    ROW(cuStreamIsCapturing, cuStreamIsCapturing, 10000, 0, (CUstream, int *))                     \
    ROW(cuGraphCreate, cuGraphCreate, 10000, 0, (CUgraph *, unsigned int))                         \
    ROW(cuGraphDestroy, cuGraphDestroy, 10000, 0, (CUgraph))                                       \
    ROW(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, 0,                                  \
        (CUnode *, CUgraph, const CUnode *, size_t, void *))                                       \
    ROW(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040, 0,                                    \
        (CUnode *, CUgraph, const CUnode *, size_t, CUdeviceptr))                                  \
    ROW(cuGraphAddNode, cuGraphAddNode, 12020, 0,                                                  \
        (CUnode *, CUgraph, const CUnode *, size_t, void *))                                       \
    ROW(cuGraphAddNode_v2, cuGraphAddNode, 12030, 0,                                               \
        (CUnode *, CUgraph, const CUnode *, const void *, size_t, void *))                         \
    ROW(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000, 0,                              \
        (CUnode *, CUgraph, const CUnode *, size_t, CUgraph))                                      \
    ROW(cuGraphClone, cuGraphClone, 10000, 0, (CUgraph *, CUgraph))                                \
    ROW(cuGraphConditionalHandleCreate, cuGraphConditionalHandleCreate, 12030, 0,                  \
        (uint64_t *, CUgraph, CUcontext, unsigned int, unsigned int))                              \
    ROW(cuGraphExecUpdate, cuGraphExecUpdate, 10020, 0, (CUexec, CUgraph, CUnode *, int *))        \
    ROW(cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000, 0, (CUexec, CUgraph, void *))              \
    ROW(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, 0,                        \
        (CUstream, CUgraph, const CUnode *, const void *, size_t, int))                            \
    ROW(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph, 12030, 2,                   \
        (CUstream, CUgraph, const CUnode *, const void *, size_t, int))                            \
    ROW(cuGraphInstantiate_v2, cuGraphInstantiate, 11000, 0,                                       \
        (CUexec *, CUgraph, CUnode *, char *, size_t))                                             \
    ROW(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, 0,                        \
        (CUexec *, CUgraph, unsigned long long))                                                   \
    ROW(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, 0,                      \
        (CUexec *, CUgraph, void *))                                                               \
    ROW(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams, 12000, 2,                 \
        (CUexec *, CUgraph, void *))                                                               \
    ROW(cuGraphExecDestroy, cuGraphExecDestroy, 10000, 0, (CUexec))                                \
    ROW(cuGraphUpload, cuGraphUpload, 11010, 0, (CUexec, CUstream))                                \
    ROW(cuGraphUpload_ptsz, cuGraphUpload, 11010, 2, (CUexec, CUstream))                           \
    ROW(cuGraphLaunch, cuGraphLaunch, 10000, 0, (CUexec, CUstream))                                \
    ROW(cuGraphLaunch_ptsz, cuGraphLaunch, 10000, 2, (CUexec, CUstream))                           \
    ROW(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, 0, (CUdevice))                          \
    ROW(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040, 0,                      \
        (CUdevice, int, void *))                                                                   \
    ROW(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, 0, (CUpool *, CUdevice))      \
    ROW(cuArrayCreate, cuArrayCreate, 2000, 0, (CUarray *, const void *))                          \
    ROW(cuArrayCreate_v2, cuArrayCreate, 3020, 0, (CUarray *, const void *))                       \
    ROW(cuArray3DCreate, cuArray3DCreate, 2000, 0, (CUarray *, const void *))                      \
    ROW(cuArray3DCreate_v2, cuArray3DCreate, 3020, 0, (CUarray *, const void *))                   \
    ROW(cuArrayDestroy, cuArrayDestroy, 2000, 0, (CUarray))                                        \
    ROW(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0,                                   \
        (CUmipmap *, const void *, unsigned int))                                                  \
    ROW(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0, (CUmipmap))                     \
    ROW(cuMemCreate, cuMemCreate, 10020, 0,                                                        \
        (uint64_t *, size_t, const void *, unsigned long long))                                    \
    ROW(cuMemRelease, cuMemRelease, 10020, 0, (uint64_t))                                          \
    ROW(cuMemAddressReserve, cuMemAddressReserve, 10020, 0,                                        \
        (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                          \
    ROW(cuMemMap, cuMemMap, 10020, 0, (CUdeviceptr, size_t, size_t, uint64_t, unsigned long long)) \
    ROW(cuMemUnmap, cuMemUnmap, 10020, 0, (CUdeviceptr, size_t))                                   \
    ROW(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0, (uint64_t *, void *))  \
    ROW(cuMemMapArrayAsync, cuMemMapArrayAsync, 11010, 0, (void *, unsigned int, CUstream))        \
    ROW(cuMemMapArrayAsync_ptsz, cuMemMapArrayAsync, 11010, 2, (void *, unsigned int, CUstream))   \
    ROW(cuMulticastCreate, cuMulticastCreate, 12010, 0, (uint64_t *, const void *))                \
    ROW(cuMulticastAddDevice, cuMulticastAddDevice, 12010, 0, (uint64_t, CUdevice))                \
    ROW(cuMulticastBindMem, cuMulticastBindMem, 12010, 0,                                          \
        (uint64_t, size_t, uint64_t, size_t, size_t, unsigned long long))                          \
    ROW(cuMulticastBindMem_v2, cuMulticastBindMem_v2, 13010, 0,                                    \
        (uint64_t, CUdevice, size_t, uint64_t, size_t, size_t, unsigned long long))                \
    ROW(cuMulticastBindAddr, cuMulticastBindAddr, 12010, 0,                                        \
        (uint64_t, size_t, CUdeviceptr, size_t, unsigned long long))                               \
    ROW(cuMulticastBindAddr_v2, cuMulticastBindAddr_v2, 13010, 0,                                  \
        (uint64_t, CUdevice, size_t, CUdeviceptr, size_t, unsigned long long))                     \
    ROW(cuMulticastUnbind, cuMulticastUnbind, 12010, 0, (uint64_t, CUdevice, size_t, size_t))      \
    ROW(cuMemAllocHost, cuMemAllocHost, 2000, 0, (void **, unsigned int))                          \
    ROW(cuMemAllocHost_v2, cuMemAllocHost, 3020, 0, (void **, size_t))                             \
    ROW(cuMemHostAlloc, cuMemHostAlloc, 2020, 0, (void **, size_t, unsigned int))                  \
    ROW(cuMemFreeHost, cuMemFreeHost, 2000, 0, (void *))                                           \
    ROW(cuMemHostRegister, cuMemHostRegister, 4000, 0, (void *, size_t, unsigned int))             \
    ROW(cuMemHostRegister_v2, cuMemHostRegister, 6050, 0, (void *, size_t, unsigned int))          \
    ROW(cuMemHostUnregister, cuMemHostUnregister, 4000, 0, (void *))                               \
    ROW(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, 0,                      \
        (void *, uint64_t, int, unsigned long long))                                               \
    ROW(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, 0,                  \
        (uint64_t *, void *, int))                                                                 \
    ROW(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, 0, (struct cu_ipc_handle *, CUdeviceptr))      \
    ROW(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010, 0,                                           \
        (CUdeviceptr *, struct cu_ipc_handle, unsigned int))                                       \
    ROW(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, 0,                                       \
        (CUdeviceptr *, struct cu_ipc_handle, unsigned int))                                       \
    ROW(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, 0, (CUdeviceptr))                          \
    ROW(cuImportExternalMemory, cuImportExternalMemory, 10000, 0, (void **, const void *))         \
    ROW(cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer, 10000, 0,                \
        (CUdeviceptr *, void *, const void *))                                                     \
    ROW(cuExternalMemoryGetMappedMipmappedArray, cuExternalMemoryGetMappedMipmappedArray, 10000,   \
        0, (CUmipmap *, void *, const void *))                                                     \
    ROW(cuImportExternalSemaphore, cuImportExternalSemaphore, 10000, 0, (void **, const void *))   \
    ROW(cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync, 10000, 0,                \
        (void *const *, const void *, unsigned int, CUstream))                                     \
    ROW(cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync, 10000, 0,                    \
        (void *const *, const void *, unsigned int, CUstream))                                     \
    ROW(cuDestroyExternalSemaphore, cuDestroyExternalSemaphore, 10000, 0, (void *))                \
    ROW(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, 0, (void *))                      \
    ROW(cuMemsetD8_v2, cuMemsetD8, 3020, 0, (CUdeviceptr, unsigned char, size_t))                  \
    ROW(cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, 0, (void *, CUdeviceptr, size_t))                     \
    ROW(cuStreamCreate, cuStreamCreate, 2000, 0, (CUstream *, unsigned int))                       \
    ROW(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, 0,                           \
        (CUstream *, unsigned int, int))                                                           \
    ROW(cuStreamDestroy_v2, cuStreamDestroy, 4000, 0, (CUstream))                                  \
    ROW(cuStreamSynchronize, cuStreamSynchronize, 2000, 0, (CUstream))                             \
    ROW(cuStreamQuery, cuStreamQuery, 2000, 0, (CUstream))                                         \
    ROW(cuLaunchHostFunc, cuLaunchHostFunc, 10000, 0, (CUstream, void (*)(void *), void *))        \
    ROW(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, 0, (CUstream, int))                  \
    ROW(cuStreamEndCapture, cuStreamEndCapture, 10000, 0, (CUstream, CUgraph *))

#ifdef HOW_LINK
#define CU_DECLARE(symbol, base, version, flags, parameters) extern CUresult symbol parameters;
CU_FUNCTIONS(CU_DECLARE)
#define CU(symbol) (symbol)
#else
struct cu_functions {
#define CU_DECLARE(symbol, base, version, flags, parameters) CUresult(*symbol) parameters;
    CU_FUNCTIONS(CU_DECLARE)
};
extern struct cu_functions cu;
#define CU(symbol) (cu.symbol)
#endif

// Makes the functions reachable. On failure prints what is missing on stderr and returns −1.
int cu_open(void);
// Unloads the driver as ffmpeg does (dlclose), so that cu_open loads it again. Does nothing when
// linked.
void cu_close(void);

#endif
