// SPDX-License-Identifier: Apache-2.0
// cudaprog: an ordinary program that uses the CUDA driver API as it is told to.
//
//   cudaprog-dlsym  finds the driver by dlopen and dlsym      [--device N] [--context none|
//   cudaprog-link   is linked against libcuda                  create|primary|runtime] [COMMAND…]
//   cudaprog-gpa    has everything from cuGetProcAddress_v2
//
// Commands come from the arguments (each one may hold several, separated by ;) or, without
// arguments or with -, from stdin, one a line. Each answers with exactly one line on stdout,
// flushed: its first word, its first argument if it has one, then "ok" and results, or "err N"
// with the driver's code. The end of the commands ends the program, with status 0. What is not
// understood prints "what?" and ends it with status 2. Sizes: 1024, 4K, 1M, 2G. Streams: a name,
// or 0 (default), 1 (legacy), 2 (per thread).
//
// Before the first command: cuInit, and a context on --device (default 0; --context create is the
// default, none makes none), which prints "ready", or "init err N" and ends with status 1.
//
//   memory      alloc NAME SIZE              cuMemAlloc_v2;   allocv1: cuMemAlloc, of 32 bits
//               pitch NAME WIDTH HEIGHT      cuMemAllocPitch_v2: "pitch a ok 512";
//                                            pitchv1: cuMemAllocPitch
//               managed NAME SIZE            cuMemAllocManaged
//               allocasync NAME SIZE STREAM  cuMemAllocAsync;   allocptsz: the _ptsz entry point
//               allocpool NAME SIZE STREAM [POOL]  cuMemAllocFromPoolAsync, the device's default
//                                            pool if none is named; poolptsz: the _ptsz entry point
//               free NAME                    cuMemFree_v2 (by name, also after it was freed);
//                                            freev1: cuMemFree
//               freeasync NAME STREAM        cuMemFreeAsync;    freeptsz: the _ptsz entry point
//               freeunknown ADDRESS          cuMemFree_v2 of a number
//               write NAME BYTE; read NAME   cuMemsetD8, cuMemcpyDtoH: "read a ok 7"
//               fill NAME SIZE               as many blocks as there are to be had, called NAME.0,
//                                            NAME.1…: "fill a ok 16 err 2"
//               many NAME COUNT SIZE         so many blocks; stops at the first failure
//               freemany NAME                frees what fill or many got: "freemany a ok 16"
//               pairs COUNT SIZE             alloc and free in turn: "pairs ok 1000000 31.5"
//                                            (nanoseconds a pair)
//               asyncpairs COUNT SIZE STREAM…  allocasync and freeasync in turn, on each of the
//                                            streams in turn: "asyncpairs ok 100"
//               threads T COUNT SIZE SEED    T threads, each COUNT random allocations of up to
//                                            SIZE bytes and frees: "threads ok GRANTED REFUSED"
//               racethreads T COUNT SIZE SEED  the same; none frees its last before all are done
//   pools       pool NAME [DEVICE]           cuMemPoolCreate; the name "default" is the device's
//   own
//               poolmanaged NAME             the same of managed memory without a place;
//                                            poolhost: of host memory
//               poolshared NAME [DEVICE]     the same of what can be exported
//               poolmost NAME BYTES          the same with a largest size
//               poolshow NAME DEVICE FLAGS   cuMemPoolSetAccess: 3, or 0 for none
//               poolnow NAME, pooldefault NAME  the device's, by cuMemGetMemPool and
//                                            cuMemGetDefaultMemPool
//               pooldestroy NAME             (by name, also after it was destroyed)
//               pooluse NAME                 cuDeviceSetMemPool;   pooluse13: cuMemSetMemPool
//               pooltrim NAME BYTES          cuMemPoolTrimTo
//               poolkeep NAME BYTES          its release threshold
//               poolholds NAME               what it holds: "poolholds a ok 4096"
//               poolrace NAME COUNT SIZE     allocasync and freeasync in turn, while another thread
//               has
//                                            the device take from NAME and from its default in turn
//   graphs      graph NAME; graphdestroy NAME
//               graphalloc NAME GRAPH SIZE [DEVICE]  cuGraphAddMemAllocNode: NAME is the address;
//                                            graphnode: cuGraphAddNode with the same; graphnodev2
//               graphchild NODE GRAPH CHILD  cuGraphAddChildGraphNode
//               graphmove NODE GRAPH CHILD   cuGraphAddNode of a child that is moved; graphmovev2
//               graphif BODY GRAPH VALUE     a conditional node that goes by its default value
//               graphclone NEW GRAPH         cuGraphClone
//               graphupdate EXEC GRAPH       cuGraphExecUpdate_v2;   graphupdatev1: …Update
//               graphfree NAME GRAPH         cuGraphAddMemFreeNode
//               instantiate NAME GRAPH [FLAGS]   cuGraphInstantiateWithFlags; instantiatev2: …_v2;
//                                            instantiatev1: cuGraphInstantiate;
//               instantiatewith NAME GRAPH FLAGS STREAM   …WithParams; withptsz: its _ptsz entry
//               point execdestroy NAME upload NAME STREAM; launch NAME STREAM; uploadptsz,
//               launchptsz graphtrim DEVICE             cuDeviceGraphMemTrim graphholds DEVICE what
//               graphs hold there: "graphholds ok 4096"
//   arrays      array NAME WIDTH HEIGHT FORMAT CHANNELS      cuArrayCreate_v2; FORMAT as its number
//               arrayv1 …                                    cuArrayCreate
//               array3d NAME WIDTH HEIGHT DEPTH FORMAT CHANNELS FLAGS  cuArray3DCreate_v2
//               array3dv1 …                                  cuArray3DCreate
//               arraydestroy NAME            cuArrayDestroy (by name, also after it was destroyed)
//               mipmap NAME … LEVELS         cuMipmappedArrayCreate, otherwise as array3d
//               mipmapdestroy NAME           cuMipmappedArrayDestroy
//   mappings    create NAME SIZE [DEVICE]    cuMemCreate;   createhost NAME SIZE [PLACE]: in
//                                            host memory, a CUmemLocationType (2)
//               places TYPE                  create, pool, poolnow, pooldefault, graphalloc and
//                                            graphnode say from now on that their DEVICE is a place
//                                            of this CUmemLocationType (1: a device)
//               releasemem NAME              cuMemRelease (by name, also after the last one)
//               reserve NAME SIZE            cuMemAddressReserve
//               map NAME OFFSET SIZE MEMORY  cuMemMap at a reserved address
//               unmap NAME OFFSET SIZE       cuMemUnmap
//               retain NEW NAME OFFSET       cuMemRetainAllocationHandle of what is mapped there
//               mapthreads T COUNT           T threads, each COUNT rounds of mapping and unmapping
//                                            2M at addresses of their own, and of small arrays:
//                                            "mapthreads ok GRANTED REFUSED"
//               createtiles NAME SIZE        cuMemCreate of what arrays can be mapped to
//               maptiles ARRAY LEVEL LAYER X Y Z WIDTH HEIGHT DEPTH MEMORY OFFSET STREAM
//                                            cuMemMapArrayAsync; MEMORY -: unmapped; mipmaptiles:
//                                            of a mipmapped array; …ptsz
//               maptail MIPMAP LAYER OFFSET SIZE MEMORY OFFSET STREAM
//   multicast   multicast NAME DEVICES SIZE; multicastadd NAME DEVICE
//               bindmem NAME OFFSET MEMORY FROM SIZE [DEVICE]  cuMulticastBindMem, or with a device
//                                            cuMulticastBindMem_v2
//               bindaddr NAME OFFSET ADDRESS FROM SIZE [DEVICE]  the same of what is mapped there
//               unbind NAME DEVICE OFFSET SIZE  cuMulticastUnbind
//   others'     createshared NAME SIZE       cuMemCreate of what can be exported
//   memory      exportfd NAME                cuMemExportToShareableHandle: "exportfd a ok 7"
//               importfd NEW PID FD          cuMemImportFromShareableHandle of another process's
//               exportfabric NAME            the same by a handle of bytes: "exportfabric a ok
//               0123…" importfabric NEW HANDLE ipcget NAME                  cuIpcGetMemHandle:
//               "ipcget a ok 0123…", in hex digits ipcopen NEW HANDLE cuIpcOpenMemHandle_v2;
//               ipcopenv1: cuIpcOpenMemHandle ipcclose NAME                cuIpcCloseMemHandle
//               external NEW PID FD SIZE     cuImportExternalMemory of another process's descriptor
//               externalmap NEW NAME SIZE    cuExternalMemoryGetMappedBuffer
//               externalarray NEW NAME OFFSET WIDTH HEIGHT DEPTH FORMAT CHANNELS FLAGS LEVELS
//                                            cuExternalMemoryGetMappedMipmappedArray
//               externaldestroy NAME         cuDestroyExternalMemory
//               semaphore NAME               cuImportExternalSemaphore of a descriptor of no use
//               semsignal NAME STREAM; semwait NAME STREAM; semdestroy NAME
//               poolexport NAME              cuMemPoolExportToShareableHandle: "poolexport a ok 7"
//               poolimport NEW PID FD        cuMemPoolImportFromShareableHandle of another
//               process's ptrexport NAME               cuMemPoolExportPointer: "ptrexport a ok
//               0123…" ptrimport NEW POOL DATA      cuMemPoolImportPointer
//   places      advise NAME ADVICE DEVICE    cuMemAdvise, by its number; −1: the host;
//                                            advisev2: cuMemAdvise_v2
//               prefetch NAME DEVICE STREAM  cuMemPrefetchAsync;   prefetchv2: …_v2;
//                                            prefetchptsz, prefetchv2ptsz
//               prefetchbatch NAME DEVICE STREAM  cuMemPrefetchBatchAsync;   discard:
//                                            cuMemDiscardBatchAsync;   discardprefetch:
//                                            cuMemDiscardAndPrefetchBatchAsync; each with …ptsz
//               peer CONTEXT; unpeer CONTEXT cuCtxEnablePeerAccess, cuCtxDisablePeerAccess
//               access NAME OFFSET SIZE DEVICE  cuMemSetAccess, to read and write
//   host        host NAME SIZE               cuMemAllocHost_v2;   hostv1: cuMemAllocHost
//               hostflags NAME SIZE          cuMemHostAlloc
//               register NAME SIZE           cuMemHostRegister_v2 of memory of the program's own;
//                                            registerv1: cuMemHostRegister
//               freehost NAME                cuMemFreeHost (by name, also after it was freed)
//               unregister NAME              cuMemHostUnregister
//   streams     stream NAME [PRIORITY]       cuStreamCreate, or …WithPriority
//               streamdestroy NAME           (by name, also after it was destroyed);
//                                            streamdestroyv1: cuStreamDestroy
//               streammany NAME COUNT        so many; stops at the first failure
//               streamunknown HANDLE         cuStreamDestroy_v2 of a number
//               sync STREAM; query STREAM    "query s err 600" while it is busy
//               syncptsz STREAM; syncevent STREAM; syncall   the same by …_ptsz, by an event, and
//                                            cuCtxSynchronize; syncof CONTEXT: its _v2
//               gate STREAM                  holds the stream up until "open" (all gates at once)
//               delay STREAM MS              holds it up for a time
//               capture STREAM [MODE]        cuStreamBeginCapture_v2
//               endcapture STREAM [GRAPH]
//               captureto STREAM GRAPH       cuStreamBeginCaptureToGraph;   capturetoptsz
//               capturing STREAM             "capturing s ok 1", or 2 when it was broken
//   contexts    context NAME [DEVICE]        cuCtxCreate_v2, current from now on
//               contextv1, contextv3, contextv4   the same by the other versions of cuCtxCreate
//               contextgl NAME [DEVICE]      cuGLCtxCreate_v2;   contextglv1: cuGLCtxCreate
//               contextvdpau NAME [DEVICE]   cuVDPAUCtxCreate_v2, with a VDPAU of the program's
//                                            own;   contextvdpauv1: cuVDPAUCtxCreate
//               attach NAME; detach NAME     cuCtxAttach of the current one, cuCtxDetach
//               push NAME; pop NEW           cuCtxPushCurrent_v2, cuCtxPopCurrent_v2;
//                                            pushv1, popv1: the first versions
//               runtime NAME [DEVICE]        the primary one by the driver's private table, as the
//                                            CUDA runtime gets it; made current; unseen: that alone
//               green NAME [DEVICE]          cuGreenCtxCreate;   greendestroy NAME
//               greencontext NEW GREEN       cuCtxFromGreenCtx;  greenstream NEW GREEN
//               primary NAME [DEVICE]        cuDevicePrimaryCtxRetain, made current
//               use NAME                     cuCtxSetCurrent;   use 0: none
//               destroy NAME                 cuCtxDestroy_v2;   destroyv1: cuCtxDestroy
//               release DEVICE; reset DEVICE the primary context's;   releasev1, resetv1
//               atend NAME                   has it released when it ends, from inside the driver,
//               as
//                                            the CUDA runtime's own state
//   questions   info                         cuMemGetInfo_v2: "info ok FREE TOTAL"; infov1: …Info
//               total [DEVICE]               cuDeviceTotalMem_v2: "total ok BYTES"; totalv1: …Mem
//               nvmlmemory [INDEX]           nvmlDeviceGetMemoryInfo: "nvmlmemory ok FREE USED
//               TOTAL";
//                                            nvmlmemory2: _v2, and RESERVED behind it
//               nvmlprocesses KIND VERSION ROOM [INDEX]  KIND: compute, graphics or mps; version
//                                            0 is the list of details:
//                                            "nvmlprocesses compute ok 2 PID:BYTES PID:BYTES";
//                                            "err 7" with too little room
//               devices                      "devices ok 2"
//               value NAME                   the address or handle, in decimal: "value a ok 4096"
//   process     pid                          "pid ok 1234"
//               init                         cuInit and a context again: in a forked child
//               fork … join                  a child runs what is between them; the parent then
//                                            prints "fork ok STATUS". Not nested.
//               rawfork … join               the same by the system call itself, past libc
//               exec PROGRAM [ARGUMENT…]     becomes another program
//               closefds                     closes all descriptors above 2
//               reload                       dlclose, dlopen and look up again (dlsym, gpa)
//               sleep MS; hold               hold: waits for the end of stdin
//               print TEXT; exit STATUS; kill SIGNAL
#include "cudriver.h"
#include "cunvml.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAMES 4096
#define WORDS 16

struct name {
    char text[32];
    uint64_t value;
    uint64_t size;
    uint64_t *many; // of fill and many
    size_t count;
};
static struct name names[NAMES];
static size_t n_names;
static CUdevice device;

struct command {
    char *word[WORDS];
    int words;
};

static void __attribute__((noreturn)) misunderstood(const struct command *c) {
    printf("what? %s\n", c->words ? c->word[0] : "");
    fflush(stdout);
    _exit(2);
}

static void answer(const struct command *c, CUresult result, const char *more) {
    bool named = c->words > 1 && !(c->word[1][0] >= '0' && c->word[1][0] <= '9');
    printf("%s%s%s ", c->word[0], named ? " " : "", named ? c->word[1] : "");
    if (result == 0)
        printf("ok%s%s\n", *more ? " " : "", more);
    else
        printf("err %d\n", result);
    fflush(stdout);
}

static bool ends_with(const char *text, const char *end) {
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

static const char *word(const struct command *c, int i) {
    if (i >= c->words)
        misunderstood(c);
    return c->word[i];
}

static uint64_t number(const struct command *c, int i) {
    char *end;
    uint64_t value = strtoull(word(c, i), &end, 0);
    switch (*end) {
    case 'T':
        value <<= 10; // fallthrough
        __attribute__((fallthrough));
    case 'G':
        value <<= 10;
        __attribute__((fallthrough));
    case 'M':
        value <<= 10;
        __attribute__((fallthrough));
    case 'K':
        value <<= 10;
        end++;
    }
    if (*end)
        misunderstood(c);
    return value;
}

static uint64_t number_or(const struct command *c, int i, uint64_t otherwise) {
    return i < c->words ? number(c, i) : otherwise;
}

static struct name *lookup(const struct command *c, int i, bool make) {
    const char *text = word(c, i);
    for (size_t n = 0; n < n_names; n++)
        if (strcmp(names[n].text, text) == 0)
            return &names[n];
    if (!make || n_names == NAMES || strlen(text) >= sizeof names[0].text)
        misunderstood(c);
    strcpy(names[n_names].text, text);
    return &names[n_names++];
}

static CUstream stream(const struct command *c, int i) {
    const char *text = word(c, i);
    if (text[0] >= '0' && text[0] <= '2' && !text[1])
        return (CUstream)(uintptr_t)(text[0] - '0');
    return (CUstream)(uintptr_t)lookup(c, i, false)->value;
}

// Memory

static CUresult named_pool(const struct command *c, int i, CUpool *pool) {
    if (strcmp(word(c, i), "default") == 0)
        return CU(cuDeviceGetDefaultMemPool)(pool, device);
    *pool = (CUpool)(uintptr_t)lookup(c, i, false)->value;
    return 0;
}

static CUresult allocate_v1(CUdeviceptr *p, uint64_t size) {
    uint32_t shorter = 0;
    CUresult r = CU(cuMemAlloc)(&shorter, (unsigned int)size);
    *p = shorter;
    return r;
}

static CUresult allocate(const struct command *c, struct name *n) {
    const char *what = c->word[0];
    CUdeviceptr p = 0;
    CUpool pool = NULL;
    CUresult r;
    n->size = number(c, 2);
    if (strcmp(what, "alloc") == 0)
        r = CU(cuMemAlloc_v2)(&p, n->size);
    else if (strcmp(what, "allocv1") == 0)
        r = allocate_v1(&p, n->size);
    else if (strcmp(what, "managed") == 0)
        r = CU(cuMemAllocManaged)(&p, n->size, 1);
    else if (strcmp(what, "allocasync") == 0)
        r = CU(cuMemAllocAsync)(&p, n->size, stream(c, 3));
    else if (strcmp(what, "allocptsz") == 0)
        r = CU(cuMemAllocAsync_ptsz)(&p, n->size, stream(c, 3));
    else {
        r = c->words > 4 ? named_pool(c, 4, &pool) : CU(cuDeviceGetDefaultMemPool)(&pool, device);
        if (r == 0 && what[0] == 'p')
            r = CU(cuMemAllocFromPoolAsync_ptsz)(&p, n->size, pool, stream(c, 3));
        else if (r == 0)
            r = CU(cuMemAllocFromPoolAsync)(&p, n->size, pool, stream(c, 3));
    }
    if (r == 0)
        n->value = p;
    return r;
}

static void do_alloc(const struct command *c) {
    answer(c, allocate(c, lookup(c, 1, true)), "");
}

static CUresult pitched_v1(CUdeviceptr *p, size_t *pitch, uint64_t width, uint64_t height) {
    uint32_t shorter = 0;
    unsigned int row = 0;
    CUresult r = CU(cuMemAllocPitch)(&shorter, &row, (unsigned int)width, (unsigned int)height, 4);
    *p = shorter;
    *pitch = row;
    return r;
}

static void do_pitch(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    size_t pitch = 0;
    CUdeviceptr p = 0;
    bool first = strcmp(c->word[0], "pitchv1") == 0;
    CUresult r = first ? pitched_v1(&p, &pitch, number(c, 2), number(c, 3))
                       : CU(cuMemAllocPitch_v2)(&p, &pitch, number(c, 2), number(c, 3), 4);
    char more[32];
    snprintf(more, sizeof more, "%zu", pitch);
    if (r == 0)
        n->value = p;
    answer(c, r, more);
}

static void do_free(const struct command *c) {
    uint64_t p = lookup(c, 1, false)->value;
    CUresult r;
    if (strcmp(c->word[0], "free") == 0)
        r = CU(cuMemFree_v2)(p);
    else if (strcmp(c->word[0], "freev1") == 0)
        r = CU(cuMemFree)((uint32_t)p);
    else if (strcmp(c->word[0], "freeasync") == 0)
        r = CU(cuMemFreeAsync)(p, stream(c, 2));
    else
        r = CU(cuMemFreeAsync_ptsz)(p, stream(c, 2));
    answer(c, r, "");
}

static void do_freeunknown(const struct command *c) {
    answer(c, CU(cuMemFree_v2)(number(c, 1)), "");
}

static void do_write(const struct command *c) {
    struct name *n = lookup(c, 1, false);
    answer(c, CU(cuMemsetD8_v2)(n->value, (unsigned char)number(c, 2), n->size), "");
}

static void do_read(const struct command *c) {
    struct name *n = lookup(c, 1, false);
    unsigned char byte = 0;
    char more[8];
    CUresult r = CU(cuMemcpyDtoH_v2)(&byte, n->value + n->size - 1, 1);
    snprintf(more, sizeof more, "%d", byte);
    answer(c, r, more);
}

static void collect(const struct command *c, uint64_t most, uint64_t size) {
    struct name *n = lookup(c, 1, true);
    char more[64];
    CUresult r = 0;
    size_t room = 0;
    n->count = 0;
    while (n->count < most) {
        if (n->count == room) {
            room = room ? room * 2 : 64;
            n->many = realloc(n->many, room * sizeof *n->many);
            if (!n->many)
                abort();
        }
        CUdeviceptr p;
        r = CU(cuMemAlloc_v2)(&p, size);
        if (r != 0)
            break;
        n->many[n->count++] = p;
    }
    if (r == 0)
        snprintf(more, sizeof more, "%zu", n->count);
    else
        snprintf(more, sizeof more, "%zu err %d", n->count, r);
    answer(c, 0, more);
}

static void do_fill(const struct command *c) {
    collect(c, UINT64_MAX, number(c, 2));
}

static void do_many(const struct command *c) {
    collect(c, number(c, 2), number(c, 3));
}

static void do_freemany(const struct command *c) {
    struct name *n = lookup(c, 1, false);
    char more[32];
    size_t freed = 0;
    CUresult r = 0;
    for (size_t i = 0; i < n->count && r == 0; i++) {
        r = CU(cuMemFree_v2)(n->many[i]);
        freed += r == 0;
    }
    n->count = 0;
    snprintf(more, sizeof more, "%zu", freed);
    answer(c, r, more);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void do_pairs(const struct command *c) {
    uint64_t count = number(c, 1);
    size_t size = number(c, 2);
    CUresult r = 0;
    char more[64];
    double began = seconds();
    for (uint64_t i = 0; i < count && r == 0; i++) {
        CUdeviceptr p;
        r = CU(cuMemAlloc_v2)(&p, size);
        if (r == 0)
            r = CU(cuMemFree_v2)(p);
    }
    snprintf(more, sizeof more, "%" PRIu64 " %.1f", count,
             (seconds() - began) * 1e9 / (double)(count ? count : 1));
    answer(c, r, more);
}

static void do_asyncpairs(const struct command *c) {
    uint64_t count = number(c, 1);
    size_t size = number(c, 2);
    CUstream s[WORDS];
    uint64_t streams = (uint64_t)c->words - 3;
    CUresult r = 0;
    char more[32];
    stream(c, 3); // one at least
    for (uint64_t i = 0; i < streams; i++)
        s[i] = stream(c, (int)i + 3);
    for (uint64_t i = 0; i < count && r == 0; i++) {
        CUdeviceptr p;
        r = CU(cuMemAllocAsync)(&p, size, s[i % streams]);
        if (r == 0)
            r = CU(cuMemFreeAsync)(p, s[i % streams]);
    }
    snprintf(more, sizeof more, "%" PRIu64, count);
    answer(c, r, more);
}

struct stress {
    pthread_t thread;
    CUcontext context;
    uint64_t count, size, seed, granted, refused;
    CUresult failed;
    pthread_barrier_t *met; // of threads that hold what they have until all are done
};

static uint64_t random_next(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

#define KEPT 64

// Each order of magnitude from 256 bytes up to the size asked for is as likely.
static size_t random_size(struct stress *s) {
    uint64_t most = s->size >> random_next(&s->seed) % 23;
    return most <= 256 ? (size_t)256 : (size_t)(256 + random_next(&s->seed) % (most - 255));
}

static void *stress_run(void *arg) {
    struct stress *s = arg;
    CUdeviceptr held[KEPT] = {0};
    s->failed = CU(cuCtxSetCurrent)(s->context);
    for (uint64_t i = 0; i < s->count && s->failed == 0; i++) {
        CUdeviceptr *p = &held[random_next(&s->seed) % KEPT];
        if (*p) {
            s->failed = CU(cuMemFree_v2)(*p);
            *p = 0;
            continue;
        }
        CUresult r = CU(cuMemAlloc_v2)(p, random_size(s));
        if (r == 0) {
            s->granted++;
        } else {
            *p = 0;
            s->refused++;
            if (r != 2)
                s->failed = r;
        }
    }
    if (s->met)
        pthread_barrier_wait(s->met);
    for (size_t i = 0; i < KEPT; i++)
        if (held[i] && s->failed == 0)
            s->failed = CU(cuMemFree_v2)(held[i]);
    return NULL;
}

static void *map_run(void *arg);

static void do_threads(const struct command *c) {
    bool maps = strcmp(c->word[0], "mapthreads") == 0;
    bool meet = strcmp(c->word[0], "racethreads") == 0;
    pthread_barrier_t met;
    size_t threads = number(c, 1);
    struct stress *all = calloc(threads, sizeof *all);
    CUcontext context = NULL;
    uint64_t granted = 0, refused = 0;
    CUresult r = CU(cuCtxGetCurrent)(&context);
    char more[64];
    if (!all || (meet && pthread_barrier_init(&met, NULL, (unsigned)threads) != 0))
        abort();
    for (size_t i = 0; i < threads; i++) {
        all[i] = (struct stress){.context = context,
                                 .met = meet ? &met : NULL,
                                 .count = number(c, 2),
                                 .size = number_or(c, 3, 0),
                                 .seed = number_or(c, 4, 0) * 1000003 + i + 1};
        if (pthread_create(&all[i].thread, NULL, maps ? map_run : stress_run, &all[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < threads; i++) {
        pthread_join(all[i].thread, NULL);
        granted += all[i].granted;
        refused += all[i].refused;
        if (all[i].failed)
            r = all[i].failed;
    }
    free(all);
    snprintf(more, sizeof more, "%" PRIu64 " %" PRIu64, granted, refused);
    answer(c, r, more);
}

// Arrays

static CUresult make_array_v1(const struct command *c, CUarray *array, bool volume) {
    unsigned int width = (unsigned int)number(c, 2), height = (unsigned int)number(c, 3);
    if (volume) {
        struct {
            unsigned int width, height, depth;
            int format;
            unsigned int channels, flags;
        } d = {width,
               height,
               (unsigned int)number(c, 4),
               (int)number(c, 5),
               (unsigned int)number(c, 6),
               (unsigned int)number(c, 7)};
        return CU(cuArray3DCreate)(array, &d);
    }
    struct {
        unsigned int width, height;
        int format;
        unsigned int channels;
    } d = {width, height, (int)number(c, 4), (unsigned int)number(c, 5)};
    return CU(cuArrayCreate)(array, &d);
}

static CUresult make_array(const struct command *c, CUarray *array) {
    struct {
        size_t width, height;
        int format;
        unsigned int channels;
    } d = {number(c, 2), number(c, 3), (int)number(c, 4), (unsigned int)number(c, 5)};
    return CU(cuArrayCreate_v2)(array, &d);
}

static CUresult make_volume(const struct command *c, void **object, bool mipmap) {
    struct {
        size_t width, height, depth;
        int format;
        unsigned int channels, flags;
    } d = {number(c, 2),
           number(c, 3),
           number(c, 4),
           (int)number(c, 5),
           (unsigned int)number(c, 6),
           (unsigned int)number(c, 7)};
    return mipmap ? CU(cuMipmappedArrayCreate)(object, &d, (unsigned int)number(c, 8))
                  : CU(cuArray3DCreate_v2)(object, &d);
}

static void do_array(const struct command *c) {
    const char *what = c->word[0];
    struct name *n = lookup(c, 1, true);
    void *object = NULL;
    CUresult r;
    if (strcmp(what, "array") == 0)
        r = make_array(c, &object);
    else if (strcmp(what, "arrayv1") == 0)
        r = make_array_v1(c, &object, false);
    else if (strcmp(what, "array3dv1") == 0)
        r = make_array_v1(c, &object, true);
    else
        r = make_volume(c, &object, strcmp(what, "mipmap") == 0);
    if (r == 0)
        n->value = (uintptr_t)object;
    answer(c, r, "");
}

static void do_arraydestroy(const struct command *c) {
    void *object = (void *)(uintptr_t)lookup(c, 1, false)->value;
    bool mipmap = strcmp(c->word[0], "mipmapdestroy") == 0;
    answer(c, mipmap ? CU(cuMipmappedArrayDestroy)(object) : CU(cuArrayDestroy)(object), "");
}

// Virtual memory management

static int place_type = 1;

static void do_places(const struct command *c) {
    place_type = (int)number(c, 1);
    answer(c, 0, "");
}

static void do_create(const struct command *c) {
    struct {
        int type, handle_types, location_type, location;
        uint64_t more[2];
    } properties = {1, 0, place_type, (int)number_or(c, 3, (uint64_t)device), {0}};
    enum { DESCRIPTOR = 1, FABRIC = 8 };
    if (strcmp(c->word[0], "createshared") == 0)
        properties.handle_types = DESCRIPTOR | FABRIC;
    if (strcmp(c->word[0], "createtiles") == 0)
        properties.more[1] = 1 << 16; // usage: CU_MEM_CREATE_USAGE_TILE_POOL
    struct name *n = lookup(c, 1, true);
    uint64_t handle = 0;
    if (strcmp(c->word[0], "createhost") == 0) {
        properties.location_type = (int)number_or(c, 3, 2);
        properties.location = 0;
    }
    CUresult r = CU(cuMemCreate)(&handle, number(c, 2), &properties, 0);
    if (r == 0)
        n->value = handle;
    answer(c, r, "");
}

static void do_releasemem(const struct command *c) {
    answer(c, CU(cuMemRelease)(lookup(c, 1, false)->value), "");
}

static void do_reserve(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    answer(c, CU(cuMemAddressReserve)(&n->value, number(c, 2), 0, 0, 0), "");
}

static void do_map(const struct command *c) {
    CUdeviceptr p = lookup(c, 1, false)->value + number(c, 2);
    answer(c, CU(cuMemMap)(p, number(c, 3), 0, lookup(c, 4, false)->value, 0), "");
}

static void do_unmap(const struct command *c) {
    answer(c, CU(cuMemUnmap)(lookup(c, 1, false)->value + number(c, 2), number(c, 3)), "");
}

static void do_retain(const struct command *c) {
    void *p = (void *)(uintptr_t)(lookup(c, 2, false)->value + number(c, 3));
    answer(c, CU(cuMemRetainAllocationHandle)(&lookup(c, 1, true)->value, p), "");
}

// CUarrayMapInfo
struct map_info {
    int object_type;
    void *object;
    int part_type;
    union {
        struct {
            unsigned int level, layer, offset[3], extent[3];
        } level;
        struct {
            unsigned int layer;
            unsigned long long offset, size;
        } tail;
    } part;
    int operation, handle_type;
    uint64_t memory;
    unsigned long long offset;
    unsigned int devices, flags, reserved[2];
};

static CUresult map_array(const struct command *c, struct map_info *m, int at) {
    enum { MAP = 1, UNMAP = 2 };
    bool unmaps = strcmp(word(c, at), "-") == 0;
    m->object = (void *)(uintptr_t)lookup(c, 1, false)->value;
    m->operation = unmaps ? UNMAP : MAP;
    m->memory = unmaps ? 0 : lookup(c, at, false)->value;
    m->offset = number(c, at + 1);
    m->devices = 1u << device;
    return ends_with(c->word[0], "ptsz") ? CU(cuMemMapArrayAsync_ptsz)(m, 1, stream(c, at + 2))
                                         : CU(cuMemMapArrayAsync)(m, 1, stream(c, at + 2));
}

static void do_maptiles(const struct command *c) {
    struct map_info m = {.object_type = strncmp(c->word[0], "mip", 3) == 0};
    m.part.level.level = (unsigned)number(c, 2);
    m.part.level.layer = (unsigned)number(c, 3);
    for (int i = 0; i < 3; i++) {
        m.part.level.offset[i] = (unsigned)number(c, 4 + i);
        m.part.level.extent[i] = (unsigned)number(c, 7 + i);
    }
    answer(c, map_array(c, &m, 10), "");
}

static void do_maptail(const struct command *c) {
    struct map_info m = {.object_type = 1, .part_type = 1};
    m.part.tail.layer = (unsigned)number(c, 2);
    m.part.tail.offset = number(c, 3);
    m.part.tail.size = number(c, 4);
    answer(c, map_array(c, &m, 5), "");
}

static void do_multicast(const struct command *c) {
    const struct {
        unsigned int devices;
        size_t size;
        unsigned long long handle_types, flags;
    } p = {.devices = (unsigned)number(c, 2), .size = number(c, 3)};
    uint64_t handle = 0;
    CUresult r = CU(cuMulticastCreate)(&handle, &p);
    if (r == 0)
        lookup(c, 1, true)->value = handle;
    answer(c, r, "");
}

static void do_multicastadd(const struct command *c) {
    answer(c, CU(cuMulticastAddDevice)(lookup(c, 1, false)->value, (CUdevice)number(c, 2)), "");
}

static void do_bind(const struct command *c) {
    uint64_t object = lookup(c, 1, false)->value, what = lookup(c, 3, false)->value;
    size_t offset = number(c, 2), from = number(c, 4), size = number(c, 5);
    CUdevice on = (CUdevice)number_or(c, 6, 0);
    bool second = c->words > 6;
    CUresult r;
    if (strcmp(c->word[0], "bindmem") == 0)
        r = second ? CU(cuMulticastBindMem_v2)(object, on, offset, what, from, size, 0)
                   : CU(cuMulticastBindMem)(object, offset, what, from, size, 0);
    else
        r = second ? CU(cuMulticastBindAddr_v2)(object, on, offset, what + from, size, 0)
                   : CU(cuMulticastBindAddr)(object, offset, what + from, size, 0);
    answer(c, r, "");
}

static void do_unbind(const struct command *c) {
    answer(c,
           CU(cuMulticastUnbind)(lookup(c, 1, false)->value, (CUdevice)number(c, 2), number(c, 3),
                                 number(c, 4)),
           "");
}

#define SLOTS 4
#define SLOT (2ull << 20)

struct slots {
    CUdeviceptr base;
    CUarray array;
    bool mapped[SLOTS];
};

// The mapping alone keeps what is mapped.
static CUresult map_one(CUdeviceptr p) {
    const int properties[8] = {1, 0, 1, device};
    uint64_t handle;
    CUresult r = CU(cuMemCreate)(&handle, SLOT, properties, 0);
    if (r != 0)
        return r;
    r = CU(cuMemMap)(p, SLOT, 0, handle, 0);
    CUresult released = CU(cuMemRelease)(handle);
    return r ? r : released;
}

// It comes back from the mapping, and is kept by its handle for a moment.
static CUresult unmap_one(CUdeviceptr p) {
    uint64_t handle;
    CUresult r = CU(cuMemRetainAllocationHandle)(&handle, (void *)(uintptr_t)(p + 1));
    if (r == 0)
        r = CU(cuMemUnmap)(p, SLOT);
    return r ? r : CU(cuMemRelease)(handle);
}

static CUresult swap_array(CUarray *array) {
    const struct {
        size_t width, height;
        int format;
        unsigned int channels;
    } d = {1000, 3, 0x20, 4};
    CUarray old = *array;
    *array = NULL;
    return old ? CU(cuArrayDestroy)(old) : CU(cuArrayCreate_v2)(array, &d);
}

static void map_round(struct stress *s, struct slots *m) {
    uint64_t i = random_next(&s->seed) % (SLOTS + 1);
    CUresult r;
    if (i == SLOTS) {
        r = swap_array(&m->array);
    } else {
        CUdeviceptr p = m->base + i * SLOT;
        r = m->mapped[i] ? unmap_one(p) : map_one(p);
        m->mapped[i] ^= r == 0;
    }
    s->granted += r == 0;
    s->refused += r == 2;
    if (r != 0 && r != 2)
        s->failed = r;
}

static void *map_run(void *arg) {
    struct stress *s = arg;
    struct slots m = {0};
    s->failed = CU(cuCtxSetCurrent)(s->context);
    if (s->failed == 0)
        s->failed = CU(cuMemAddressReserve)(&m.base, SLOTS * SLOT, 0, 0, 0);
    for (uint64_t i = 0; i < s->count && s->failed == 0; i++)
        map_round(s, &m);
    for (size_t i = 0; i < SLOTS; i++)
        if (m.mapped[i] && s->failed == 0)
            s->failed = unmap_one(m.base + i * SLOT);
    if (m.array && s->failed == 0)
        s->failed = CU(cuArrayDestroy)(m.array);
    return NULL;
}

// Memory of others

static void do_exportfd(const struct command *c) {
    int fd = -1;
    char more[16];
    CUresult r = CU(cuMemExportToShareableHandle)(&fd, lookup(c, 1, false)->value, 1, 0);
    snprintf(more, sizeof more, "%d", fd);
    answer(c, r, more);
}

// A descriptor of another process's, as one of our own.
static int take_descriptor(const struct command *c) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/fd/%s", word(c, 2), word(c, 3));
    return open(path, O_RDWR | O_CLOEXEC);
}

static void do_importfd(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    int fd = take_descriptor(c);
    uint64_t handle = 0;
    CUresult r = CU(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd, 1);
    close(fd);
    if (r == 0)
        n->value = handle;
    answer(c, r, "");
}

static void print_hex(const struct cu_ipc_handle *h, char *text) {
    *text = 0;
    for (size_t i = 0; i < sizeof *h; i++)
        snprintf(text + 2 * i, 3, "%02x", h->bytes[i]);
}

static struct cu_ipc_handle parse_hex(const char *text) {
    struct cu_ipc_handle h = {{0}};
    for (size_t i = 0; i < sizeof h && strlen(text) == 2 * sizeof h; i++) {
        const char digits[3] = {text[2 * i], text[2 * i + 1], 0};
        h.bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return h;
}

static void do_exportfabric(const struct command *c) {
    struct cu_ipc_handle h = {{0}};
    char more[2 * sizeof h + 1];
    CUresult r = CU(cuMemExportToShareableHandle)(&h, lookup(c, 1, false)->value, 8, 0);
    print_hex(&h, more);
    answer(c, r, more);
}

static void do_importfabric(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    struct cu_ipc_handle h = parse_hex(word(c, 2));
    uint64_t handle = 0;
    CUresult r = CU(cuMemImportFromShareableHandle)(&handle, &h, 8);
    if (r == 0)
        n->value = handle;
    answer(c, r, "");
}

static void do_ipcget(const struct command *c) {
    struct cu_ipc_handle h = {{0}};
    char more[2 * sizeof h + 1];
    CUdeviceptr p = lookup(c, 1, false)->value;
    bool pooled = strcmp(c->word[0], "ptrexport") == 0;
    CUresult r = pooled ? CU(cuMemPoolExportPointer)(&h, p) : CU(cuIpcGetMemHandle)(&h, p);
    print_hex(&h, more);
    answer(c, r, more);
}

static void do_ipcopen(const struct command *c) {
    CUdeviceptr p = 0;
    struct name *n = lookup(c, 1, true);
    struct cu_ipc_handle h = parse_hex(word(c, 2));
    bool first = strcmp(c->word[0], "ipcopenv1") == 0;
    CUresult r = first ? CU(cuIpcOpenMemHandle)(&p, h, 1) : CU(cuIpcOpenMemHandle_v2)(&p, h, 1);
    if (r == 0)
        n->value = p;
    answer(c, r, "");
}

static void do_poolexport(const struct command *c) {
    int fd = -1;
    char more[16];
    CUpool pool = (CUpool)(uintptr_t)lookup(c, 1, false)->value;
    CUresult r = CU(cuMemPoolExportToShareableHandle)(&fd, pool, 1, 0);
    snprintf(more, sizeof more, "%d", fd);
    answer(c, r, more);
}

static void do_poolimport(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    int fd = take_descriptor(c);
    CUpool pool = NULL;
    CUresult r = CU(cuMemPoolImportFromShareableHandle)(&pool, (void *)(intptr_t)fd, 1, 0);
    close(fd);
    if (r == 0)
        n->value = (uintptr_t)pool;
    answer(c, r, "");
}

static void do_ptrimport(const struct command *c) {
    CUdeviceptr p = 0;
    struct name *n = lookup(c, 1, true);
    struct cu_ipc_handle h = parse_hex(word(c, 3));
    CUpool pool = (CUpool)(uintptr_t)lookup(c, 2, false)->value;
    CUresult r = CU(cuMemPoolImportPointer)(&p, pool, &h);
    if (r == 0)
        n->value = p;
    answer(c, r, "");
}

static void do_ipcclose(const struct command *c) {
    answer(c, CU(cuIpcCloseMemHandle)(lookup(c, 1, false)->value), "");
}

static void do_external(const struct command *c) {
    struct {
        int type;
        union {
            int fd;
            void *other[2];
        } handle;
        unsigned long long size;
        unsigned int more[17];
    } d = {.type = 1, .size = number(c, 4)};
    void *external = NULL;
    struct name *n = lookup(c, 1, true);
    d.handle.fd = take_descriptor(c);
    CUresult r = CU(cuImportExternalMemory)(&external, &d);
    if (r == 0)
        n->value = (uintptr_t)external;
    else
        close(d.handle.fd);
    answer(c, r, "");
}

static void do_externalmap(const struct command *c) {
    const struct {
        unsigned long long offset, size;
        unsigned int more[17];
    } d = {.size = number(c, 3)};
    CUdeviceptr p = 0;
    struct name *n = lookup(c, 1, true);
    void *external = (void *)(uintptr_t)lookup(c, 2, false)->value;
    CUresult r = CU(cuExternalMemoryGetMappedBuffer)(&p, external, &d);
    if (r == 0)
        n->value = p;
    answer(c, r, "");
}

static void do_externalarray(const struct command *c) {
    const struct {
        unsigned long long offset;
        struct {
            size_t width, height, depth;
            int format;
            unsigned int channels, flags;
        } array;
        unsigned int levels, more[16];
    } d = {.offset = number(c, 3),
           .array = {number(c, 4), number(c, 5), number(c, 6), (int)number(c, 7),
                     (unsigned)number(c, 8), (unsigned)number(c, 9)},
           .levels = (unsigned)number(c, 10)};
    CUmipmap mipmap = NULL;
    struct name *n = lookup(c, 1, true);
    void *external = (void *)(uintptr_t)lookup(c, 2, false)->value;
    CUresult r = CU(cuExternalMemoryGetMappedMipmappedArray)(&mipmap, external, &d);
    if (r == 0)
        n->value = (uintptr_t)mipmap;
    answer(c, r, "");
}

static void do_semaphore(const struct command *c) {
    struct {
        int type;
        union {
            int fd;
            void *other[2];
        } handle;
        unsigned int flags, more[16];
    } d = {.type = 1};
    const uint64_t fence[18] = {0};
    const char *what = c->word[0];
    struct name *n = lookup(c, 1, strcmp(what, "semaphore") == 0);
    void *semaphore = (void *)(uintptr_t)n->value;
    CUresult r;
    if (strcmp(what, "semaphore") == 0) {
        d.handle.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        r = CU(cuImportExternalSemaphore)(&semaphore, &d);
        if (r != 0)
            close(d.handle.fd);
    } else if (strcmp(what, "semsignal") == 0) {
        r = CU(cuSignalExternalSemaphoresAsync)(&semaphore, fence, 1, stream(c, 2));
    } else if (strcmp(what, "semwait") == 0) {
        r = CU(cuWaitExternalSemaphoresAsync)(&semaphore, fence, 1, stream(c, 2));
    } else {
        r = CU(cuDestroyExternalSemaphore)(semaphore);
    }
    if (r == 0)
        n->value = (uintptr_t)semaphore;
    answer(c, r, "");
}

static void do_externaldestroy(const struct command *c) {
    void *external = (void *)(uintptr_t)lookup(c, 1, false)->value;
    answer(c, CU(cuDestroyExternalMemory)(external), "");
}

// Where memory is, and who may use it

static int device_or_host(const struct command *c, int i) {
    return (int)strtol(word(c, i), NULL, 10);
}

static struct cu_location place(const struct command *c, int i) {
    enum { DEVICE = 1, HOST };
    int id = device_or_host(c, i);
    return id < 0 ? (struct cu_location){HOST, 0} : (struct cu_location){DEVICE, id};
}

static void do_advise(const struct command *c) {
    struct name *n = lookup(c, 1, false);
    int advice = (int)number(c, 2);
    answer(c,
           strcmp(c->word[0], "advise") == 0
               ? CU(cuMemAdvise)(n->value, n->size, advice, device_or_host(c, 3))
               : CU(cuMemAdvise_v2)(n->value, n->size, advice, place(c, 3)),
           "");
}

static void do_prefetch(const struct command *c) {
    const char *what = c->word[0];
    struct name *n = lookup(c, 1, false);
    CUstream s = stream(c, 3);
    CUresult r;
    if (strcmp(what, "prefetch") == 0)
        r = CU(cuMemPrefetchAsync)(n->value, n->size, device_or_host(c, 2), s);
    else if (strcmp(what, "prefetchptsz") == 0)
        r = CU(cuMemPrefetchAsync_ptsz)(n->value, n->size, device_or_host(c, 2), s);
    else if (strcmp(what, "prefetchv2") == 0)
        r = CU(cuMemPrefetchAsync_v2)(n->value, n->size, place(c, 2), 0, s);
    else
        r = CU(cuMemPrefetchAsync_v2_ptsz)(n->value, n->size, place(c, 2), 0, s);
    answer(c, r, "");
}

static void do_batch(const struct command *c) {
    const char *what = c->word[0];
    struct name *n = lookup(c, 1, false);
    struct cu_location at = place(c, 2);
    CUstream s = stream(c, 3);
    CUdeviceptr p = n->value;
    size_t size = n->size, from = 0;
    CUresult r;
    if (strcmp(what, "prefetchbatch") == 0)
        r = CU(cuMemPrefetchBatchAsync)(&p, &size, 1, &at, &from, 1, 0, s);
    else if (strcmp(what, "prefetchbatchptsz") == 0)
        r = CU(cuMemPrefetchBatchAsync_ptsz)(&p, &size, 1, &at, &from, 1, 0, s);
    else if (strcmp(what, "discardprefetch") == 0)
        r = CU(cuMemDiscardAndPrefetchBatchAsync)(&p, &size, 1, &at, &from, 1, 0, s);
    else if (strcmp(what, "discardprefetchptsz") == 0)
        r = CU(cuMemDiscardAndPrefetchBatchAsync_ptsz)(&p, &size, 1, &at, &from, 1, 0, s);
    else if (strcmp(what, "discard") == 0)
        r = CU(cuMemDiscardBatchAsync)(&p, &size, 1, 0, s);
    else
        r = CU(cuMemDiscardBatchAsync_ptsz)(&p, &size, 1, 0, s);
    answer(c, r, "");
}

static void do_peer(const struct command *c) {
    CUcontext peer = (CUcontext)(uintptr_t)lookup(c, 1, false)->value;
    bool on = strcmp(c->word[0], "peer") == 0;
    answer(c, on ? CU(cuCtxEnablePeerAccess)(peer, 0) : CU(cuCtxDisablePeerAccess)(peer), "");
}

struct access {
    struct cu_location location;
    int flags;
};

static void do_access(const struct command *c) {
    const struct access to = {place(c, 4), 3};
    CUdeviceptr p = lookup(c, 1, false)->value + number(c, 2);
    answer(c, CU(cuMemSetAccess)(p, number(c, 3), &to, 1), "");
}

// Host memory

static CUresult lock_host(const struct command *c, void **at) {
    const char *what = c->word[0];
    size_t size = number(c, 2);
    if (strcmp(what, "host") == 0)
        return CU(cuMemAllocHost_v2)(at, size);
    if (strcmp(what, "hostv1") == 0)
        return CU(cuMemAllocHost)(at, (unsigned int)size);
    if (strcmp(what, "hostflags") == 0)
        return CU(cuMemHostAlloc)(at, size, 1);
    *at = malloc(size); // small ones: what is registered stays allocated
    return strcmp(what, "register") == 0 ? CU(cuMemHostRegister_v2)(*at, size, 0)
                                         : CU(cuMemHostRegister)(*at, size, 0);
}

static void do_host(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    void *at = NULL;
    CUresult r = lock_host(c, &at);
    if (r == 0)
        n->value = (uintptr_t)at;
    answer(c, r, "");
}

static void do_freehost(const struct command *c) {
    void *at = (void *)(uintptr_t)lookup(c, 1, false)->value;
    bool registered = strcmp(c->word[0], "unregister") == 0;
    answer(c, registered ? CU(cuMemHostUnregister)(at) : CU(cuMemFreeHost)(at), "");
}

// Streams

static void do_stream(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    CUstream s = NULL;
    CUresult r = c->words > 2
                     ? CU(cuStreamCreateWithPriority)(&s, 1, (int)strtol(word(c, 2), NULL, 10))
                     : CU(cuStreamCreate)(&s, 1);
    if (r == 0)
        n->value = (uintptr_t)s;
    else if (s)
        r = 9999; // a refusal must leave the handle alone
    answer(c, r, "");
}

static void do_streammany(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    uint64_t most = number(c, 2);
    char more[64];
    CUresult r = 0;
    n->many = calloc(most ? most : 1, sizeof *n->many);
    n->count = 0;
    while (n->count < most) {
        CUstream s = NULL;
        r = CU(cuStreamCreate)(&s, 1);
        if (r != 0)
            break;
        n->many[n->count++] = (uintptr_t)s;
    }
    if (r == 0)
        snprintf(more, sizeof more, "%zu", n->count);
    else
        snprintf(more, sizeof more, "%zu err %d", n->count, r);
    answer(c, 0, more);
}

static void do_streamdestroy(const struct command *c) {
    bool first = strcmp(c->word[0], "streamdestroyv1") == 0;
    answer(c, first ? CU(cuStreamDestroy)(stream(c, 1)) : CU(cuStreamDestroy_v2)(stream(c, 1)), "");
}

static void do_streamunknown(const struct command *c) {
    answer(c, CU(cuStreamDestroy_v2)((CUstream)(uintptr_t)number(c, 1)), "");
}

static void do_sync(const struct command *c) {
    answer(c, CU(cuStreamSynchronize)(stream(c, 1)), "");
}

static void do_query(const struct command *c) {
    answer(c, CU(cuStreamQuery)(stream(c, 1)), "");
}

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opened = PTHREAD_COND_INITIALIZER;
static unsigned gate_generation;

static void gate_wait(void *arg) {
    pthread_mutex_lock(&gate_lock);
    while (gate_generation == (unsigned)(uintptr_t)arg)
        pthread_cond_wait(&gate_opened, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
}

static void do_gate(const struct command *c) {
    void *now = (void *)(uintptr_t)gate_generation;
    answer(c, CU(cuLaunchHostFunc)(stream(c, 1), gate_wait, now), "");
}

static void do_open(const struct command *c) {
    pthread_mutex_lock(&gate_lock);
    gate_generation++;
    pthread_cond_broadcast(&gate_opened);
    pthread_mutex_unlock(&gate_lock);
    answer(c, 0, "");
}

static void delay_run(void *arg) {
    usleep((useconds_t)(uintptr_t)arg * 1000);
}

static void do_delay(const struct command *c) {
    void *ms = (void *)(uintptr_t)number(c, 2);
    answer(c, CU(cuLaunchHostFunc)(stream(c, 1), delay_run, ms), "");
}

static void do_syncptsz(const struct command *c) {
    answer(c, CU(cuStreamSynchronize_ptsz)(stream(c, 1)), "");
}

static void do_syncevent(const struct command *c) {
    CUevent event;
    CUresult r = CU(cuEventCreate)(&event, 0);
    if (r == 0)
        r = CU(cuEventRecord)(event, stream(c, 1));
    if (r == 0)
        r = CU(cuEventSynchronize)(event);
    answer(c, r ? r : CU(cuEventDestroy_v2)(event), "");
}

static void do_syncall(const struct command *c) {
    answer(c, CU(cuCtxSynchronize)(), "");
}

static void do_syncof(const struct command *c) {
    answer(c, CU(cuCtxSynchronize_v2)((CUcontext)(uintptr_t)lookup(c, 1, false)->value), "");
}

static void do_capture(const struct command *c) {
    answer(c, CU(cuStreamBeginCapture_v2)(stream(c, 1), (int)number_or(c, 2, 0)), "");
}

static void do_endcapture(const struct command *c) {
    CUgraph graph = NULL;
    CUresult r = CU(cuStreamEndCapture)(stream(c, 1), &graph);
    if (r == 0 && c->words > 2)
        lookup(c, 2, true)->value = (uintptr_t)graph;
    answer(c, r, "");
}

static void do_captureto(const struct command *c) {
    CUgraph into = (CUgraph)(uintptr_t)lookup(c, 2, false)->value;
    bool ptsz = strcmp(c->word[0], "capturetoptsz") == 0;
    CUresult r = ptsz ? CU(cuStreamBeginCaptureToGraph_ptsz)(stream(c, 1), into, NULL, NULL, 0, 0)
                      : CU(cuStreamBeginCaptureToGraph)(stream(c, 1), into, NULL, NULL, 0, 0);
    answer(c, r, "");
}

static void do_capturing(const struct command *c) {
    int status = 0;
    char more[16];
    CUresult r = CU(cuStreamIsCapturing)(stream(c, 1), &status);
    snprintf(more, sizeof more, "%d", status);
    answer(c, r, more);
}

// Pools and graphs

struct pool_properties {
    int type, handle_types, location_type, location;
    void *security;
    size_t most;
    unsigned char more[56];
};

static struct pool_properties properties_on(CUdevice on) {
    return (struct pool_properties){.type = 1, .location_type = place_type, .location = on};
}

static void do_pool(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    enum { PINNED = 1, MANAGED };
    const char *what = c->word[0];
    struct pool_properties properties = properties_on((CUdevice)number_or(c, 2, (uint64_t)device));
    CUpool pool = NULL;
    CUresult r;
    if (strcmp(what, "poolmanaged") == 0)
        properties = (struct pool_properties){.type = MANAGED};
    properties.handle_types = strcmp(what, "poolshared") == 0;
    if (strcmp(what, "poolmost") == 0) {
        properties.location = device;
        properties.most = number(c, 2);
    }
    if (strcmp(what, "poolhost") == 0)
        properties = (struct pool_properties){.type = PINNED, .location_type = 2};
    if (strcmp(what, "poolnow") == 0)
        r = CU(cuMemGetMemPool)(&pool, &properties.location_type, PINNED);
    else if (strcmp(what, "pooldefault") == 0)
        r = CU(cuMemGetDefaultMemPool)(&pool, &properties.location_type, PINNED);
    else
        r = CU(cuMemPoolCreate)(&pool, &properties);
    if (r == 0)
        n->value = (uintptr_t)pool;
    answer(c, r, "");
}

static void do_poolcall(const struct command *c) {
    enum { RELEASE_THRESHOLD = 4, RESERVED_CURRENT = 5 };
    const char *what = c->word[0];
    uint64_t value = number_or(c, 2, 0);
    char more[32] = "";
    CUpool pool = NULL;
    CUresult r = named_pool(c, 1, &pool);
    if (r != 0)
        ;
    else if (strcmp(what, "pooldestroy") == 0)
        r = CU(cuMemPoolDestroy)(pool);
    else if (strcmp(what, "poolshow") == 0) {
        const struct access to = {place(c, 2), (int)number(c, 3)};
        r = CU(cuMemPoolSetAccess)(pool, &to, 1);
    } else if (strcmp(what, "pooluse13") == 0) {
        const struct cu_location at = {1, device};
        r = CU(cuMemSetMemPool)(&at, 1, pool);
    } else if (strcmp(what, "pooluse") == 0)
        r = CU(cuDeviceSetMemPool)(device, pool);
    else if (strcmp(what, "pooltrim") == 0)
        r = CU(cuMemPoolTrimTo)(pool, value);
    else if (strcmp(what, "poolkeep") == 0)
        r = CU(cuMemPoolSetAttribute)(pool, RELEASE_THRESHOLD, &value);
    else {
        r = CU(cuMemPoolGetAttribute)(pool, RESERVED_CURRENT, &value);
        snprintf(more, sizeof more, "%" PRIu64, value);
    }
    answer(c, r, more);
}

struct swapping {
    CUpool pools[2];
    _Atomic bool over;
    CUresult failed;
};

static void *swap_run(void *arg) {
    struct swapping *s = arg;
    for (unsigned i = 0; !atomic_load(&s->over) && s->failed == 0; i++)
        s->failed = CU(cuDeviceSetMemPool)(device, s->pools[i % 2]);
    return NULL;
}

static void do_poolrace(const struct command *c) {
    struct swapping s = {.over = false};
    uint64_t count = number(c, 2);
    size_t size = number(c, 3);
    pthread_t other;
    CUresult r = named_pool(c, 1, &s.pools[0]);
    if (r == 0)
        r = CU(cuDeviceGetDefaultMemPool)(&s.pools[1], device);
    if (pthread_create(&other, NULL, swap_run, &s) != 0)
        abort();
    for (uint64_t i = 0; i < count && r == 0; i++) {
        CUdeviceptr p;
        r = CU(cuMemAllocAsync)(&p, size, NULL);
        if (r == 0)
            r = CU(cuMemFreeAsync)(p, NULL);
        if (r == 0)
            r = CU(cuStreamSynchronize)(NULL);
    }
    atomic_store(&s.over, true);
    pthread_join(other, NULL);
    answer(c, r ? r : s.failed, "");
}

static CUgraph graph(const struct command *c, int i) {
    return (CUgraph)(uintptr_t)lookup(c, i, false)->value;
}

static void do_graph(const struct command *c) {
    CUgraph made = NULL;
    CUresult r = CU(cuGraphCreate)(&made, 0);
    if (r == 0)
        lookup(c, 1, true)->value = (uintptr_t)made;
    answer(c, r, "");
}

static void do_graphdestroy(const struct command *c) {
    answer(c, CU(cuGraphDestroy)(graph(c, 1)), "");
}

struct alloc_node {
    struct pool_properties pool;
    const void *access;
    size_t accesses, bytes;
    CUdeviceptr address;
};

// CUgraphNodeParams
struct any_node {
    int type, reserved[3];
    union {
        struct alloc_node alloc;
        struct {
            CUgraph graph;
            int ownership;
        } child;
        struct {
            uint64_t handle;
            int type;
            unsigned int size;
            CUgraph *bodies;
            CUcontext context;
        } condition;
        uint64_t room[30];
    };
};

static CUresult add_node(const struct command *c, CUnode *node, struct any_node *any) {
    return ends_with(c->word[0], "v2")
               ? CU(cuGraphAddNode_v2)(node, graph(c, 2), NULL, NULL, 0, any)
               : CU(cuGraphAddNode)(node, graph(c, 2), NULL, 0, any);
}

static void do_graphalloc(const struct command *c) {
    enum { NODE_ALLOC = 10 };
    struct any_node any = {.type = NODE_ALLOC};
    any.alloc.pool = properties_on((CUdevice)number_or(c, 4, (uint64_t)device));
    any.alloc.bytes = number(c, 3);
    CUnode node;
    CUresult r = strcmp(c->word[0], "graphalloc") != 0
                     ? add_node(c, &node, &any)
                     : CU(cuGraphAddMemAllocNode)(&node, graph(c, 2), NULL, 0, &any.alloc);
    if (r == 0)
        lookup(c, 1, true)->value = any.alloc.address;
    answer(c, r, "");
}

static void do_graphchild(const struct command *c) {
    enum { NODE_CHILD = 4, MOVE = 1 };
    struct any_node any = {.type = NODE_CHILD, .child = {graph(c, 3), MOVE}};
    CUnode node = NULL;
    CUresult r = strcmp(c->word[0], "graphchild") != 0
                     ? add_node(c, &node, &any)
                     : CU(cuGraphAddChildGraphNode)(&node, graph(c, 2), NULL, 0, graph(c, 3));
    if (r == 0)
        lookup(c, 1, true)->value = (uintptr_t)node;
    answer(c, r, "");
}

static void do_graphif(const struct command *c) {
    enum { NODE_CONDITION = 13, ASSIGN_DEFAULT = 1 };
    struct any_node any = {.type = NODE_CONDITION, .condition = {.size = 1}};
    CUnode node;
    CUresult r = CU(cuGraphConditionalHandleCreate)(&any.condition.handle, graph(c, 2), NULL,
                                                    (unsigned)number(c, 3), ASSIGN_DEFAULT);
    if (r == 0)
        r = CU(cuGraphAddNode)(&node, graph(c, 2), NULL, 0, &any);
    if (r == 0)
        lookup(c, 1, true)->value = (uintptr_t)any.condition.bodies[0];
    answer(c, r, "");
}

static void do_graphclone(const struct command *c) {
    CUgraph made = NULL;
    CUresult r = CU(cuGraphClone)(&made, graph(c, 2));
    if (r == 0)
        lookup(c, 1, true)->value = (uintptr_t)made;
    answer(c, r, "");
}

static void do_graphupdate(const struct command *c) {
    struct {
        int result;
        CUnode node, from;
    } info;
    CUresult r = strcmp(c->word[0], "graphupdatev1") == 0
                     ? CU(cuGraphExecUpdate)(graph(c, 1), graph(c, 2), &info.node, &info.result)
                     : CU(cuGraphExecUpdate_v2)(graph(c, 1), graph(c, 2), &info);
    answer(c, r, "");
}

static void do_graphfree(const struct command *c) {
    CUnode node;
    CUdeviceptr p = lookup(c, 1, false)->value;
    answer(c, CU(cuGraphAddMemFreeNode)(&node, graph(c, 2), NULL, 0, p), "");
}

static void do_instantiate(const struct command *c) {
    const char *what = c->word[0];
    struct {
        uint64_t flags;
        CUstream upload;
        CUnode error;
        int result;
    } with = {.flags = number_or(c, 3, 0), .upload = c->words > 4 ? stream(c, 4) : NULL};
    CUexec made = NULL;
    CUnode bad = NULL;
    CUresult r;
    if (strcmp(what, "instantiatev1") == 0)
        r = CU(cuGraphInstantiate)(&made, graph(c, 2), &bad, NULL, 0);
    else if (strcmp(what, "instantiatev2") == 0)
        r = CU(cuGraphInstantiate_v2)(&made, graph(c, 2), &bad, NULL, 0);
    else if (strcmp(what, "instantiatewith") == 0)
        r = CU(cuGraphInstantiateWithParams)(&made, graph(c, 2), &with);
    else if (strcmp(what, "withptsz") == 0)
        r = CU(cuGraphInstantiateWithParams_ptsz)(&made, graph(c, 2), &with);
    else
        r = CU(cuGraphInstantiateWithFlags)(&made, graph(c, 2), with.flags);
    if (r == 0)
        lookup(c, 1, true)->value = (uintptr_t)made;
    answer(c, r, "");
}

static void do_exec_graph(const struct command *c) {
    const char *what = c->word[0];
    CUexec exec = graph(c, 1);
    CUresult r;
    if (strcmp(what, "execdestroy") == 0)
        r = CU(cuGraphExecDestroy)(exec);
    else if (strcmp(what, "upload") == 0)
        r = CU(cuGraphUpload)(exec, stream(c, 2));
    else if (strcmp(what, "uploadptsz") == 0)
        r = CU(cuGraphUpload_ptsz)(exec, stream(c, 2));
    else if (strcmp(what, "launchptsz") == 0)
        r = CU(cuGraphLaunch_ptsz)(exec, stream(c, 2));
    else
        r = CU(cuGraphLaunch)(exec, stream(c, 2));
    answer(c, r, "");
}

static void do_graphtrim(const struct command *c) {
    answer(c, CU(cuDeviceGraphMemTrim)((CUdevice)number(c, 1)), "");
}

static void do_graphholds(const struct command *c) {
    enum { RESERVED_CURRENT = 2 };
    uint64_t value = 0;
    char more[32];
    CUresult r = CU(cuDeviceGetGraphMemAttribute)((CUdevice)number(c, 1), RESERVED_CURRENT, &value);
    snprintf(more, sizeof more, "%" PRIu64, value);
    answer(c, r, more);
}

// Contexts

static CUresult retain(CUcontext *context) {
    CUresult r = CU(cuDevicePrimaryCtxRetain)(context, device);
    return r ? r : CU(cuCtxSetCurrent)(*context);
}

// The third entry of the table gives the runtime its context.
static CUresult runtime(CUcontext *context) {
    typedef CUresult get_primary(CUcontext *, CUdevice);
    static const unsigned char id[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                         0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
    const void *table = NULL;
    CUresult r = CU(cuGetExportTable)(&table, id);
    if (r == 0)
        r = ((get_primary *)((void *const *)table)[2])(context, device);
    return r;
}

// All that the driver is to have from a VDPAU: that it knows its one device.
enum { VDPAU_DEVICE = 7, VDPAU_INVALID_HANDLE = 3 };

static int vdpau(uint32_t of, uint32_t function, void **pointer) {
    *pointer = (void *)vdpau;
    return of == VDPAU_DEVICE && function != 0 ? 0 : VDPAU_INVALID_HANDLE;
}

static CUresult make_graphics(const char *how, CUcontext *context) {
    if (strcmp(how, "contextgl") == 0)
        return CU(cuGLCtxCreate_v2)(context, 0, device);
    if (strcmp(how, "contextglv1") == 0)
        return CU(cuGLCtxCreate)(context, 0, device);
    if (strcmp(how, "contextvdpau") == 0)
        return CU(cuVDPAUCtxCreate_v2)(context, 0, device, VDPAU_DEVICE, vdpau);
    return CU(cuVDPAUCtxCreate)(context, 0, device, VDPAU_DEVICE, vdpau);
}

static CUresult make_context(const char *how, CUcontext *context) {
    if (strcmp(how, "primary") == 0)
        return retain(context);
    if (strcmp(how, "unseen") == 0)
        return runtime(context);
    if (strcmp(how, "runtime") == 0) {
        CUresult r = runtime(context);
        return r ? r : CU(cuCtxSetCurrent)(*context);
    }
    if (strcmp(how, "contextv1") == 0)
        return CU(cuCtxCreate)(context, 0, device);
    if (strcmp(how, "contextv3") == 0)
        return CU(cuCtxCreate_v3)(context, NULL, 0, 0, device);
    if (strcmp(how, "contextv4") == 0)
        return CU(cuCtxCreate_v4)(context, NULL, 0, device);
    if (strncmp(how, "contextgl", 9) == 0 || strncmp(how, "contextvdpau", 12) == 0)
        return make_graphics(how, context);
    return CU(cuCtxCreate_v2)(context, 0, device);
}

static void do_context(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    CUcontext context = NULL;
    device = (CUdevice)number_or(c, 2, (uint64_t)device);
    CUresult r = make_context(c->word[0], &context);
    if (r == 0)
        n->value = (uintptr_t)context;
    else if (context && strcmp(c->word[0], "runtime") != 0 && strcmp(c->word[0], "unseen") != 0)
        r = 9999; // a refusal must leave the handle alone
    answer(c, r, "");
}

static void do_attach(const struct command *c) {
    CUcontext context = NULL;
    struct name *n = lookup(c, 1, true);
    CUresult r = CU(cuCtxAttach)(&context, 0);
    if (r == 0)
        n->value = (uintptr_t)context;
    answer(c, r, "");
}

static void do_detach(const struct command *c) {
    answer(c, CU(cuCtxDetach)((CUcontext)(uintptr_t)lookup(c, 1, false)->value), "");
}

static void do_push(const struct command *c) {
    CUcontext context = (CUcontext)(uintptr_t)lookup(c, 1, false)->value;
    bool first = strcmp(c->word[0], "pushv1") == 0;
    answer(c, first ? CU(cuCtxPushCurrent)(context) : CU(cuCtxPushCurrent_v2)(context), "");
}

static void do_pop(const struct command *c) {
    CUcontext context = NULL;
    bool first = strcmp(c->word[0], "popv1") == 0;
    CUresult r = first ? CU(cuCtxPopCurrent)(&context) : CU(cuCtxPopCurrent_v2)(&context);
    if (r == 0)
        lookup(c, 1, true)->value = (uintptr_t)context;
    answer(c, r, "");
}

static CUresult make_green(void **green) {
    unsigned char resource[144];
    void *description = NULL;
    CUresult r = CU(cuDeviceGetDevResource)(device, resource, 1);
    if (r == 0)
        r = CU(cuDevResourceGenerateDesc)(&description, resource, 1);
    return r ? r : CU(cuGreenCtxCreate)(green, description, device, 1);
}

static void do_green(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    void *made = NULL;
    CUresult r;
    if (strcmp(c->word[0], "green") == 0) {
        device = (CUdevice)number_or(c, 2, (uint64_t)device);
        r = make_green(&made);
    } else {
        void *green = (void *)(uintptr_t)lookup(c, 2, false)->value;
        r = strcmp(c->word[0], "greenstream") == 0 ? CU(cuGreenCtxStreamCreate)(&made, green, 1, 0)
                                                   : CU(cuCtxFromGreenCtx)(&made, green);
    }
    if (r == 0)
        n->value = (uintptr_t)made;
    else if (made)
        r = 9999; // a refusal must leave the handle alone
    answer(c, r, "");
}

static void do_greendestroy(const struct command *c) {
    answer(c, CU(cuGreenCtxDestroy)((void *)(uintptr_t)lookup(c, 1, false)->value), "");
}

static void do_use(const struct command *c) {
    bool none = strcmp(word(c, 1), "0") == 0;
    void *context = none ? NULL : (void *)(uintptr_t)lookup(c, 1, false)->value;
    answer(c, CU(cuCtxSetCurrent)(context), "");
}

static void do_destroy(const struct command *c) {
    CUcontext context = (CUcontext)(uintptr_t)lookup(c, 1, false)->value;
    bool first = strcmp(c->word[0], "destroyv1") == 0;
    answer(c, first ? CU(cuCtxDestroy)(context) : CU(cuCtxDestroy_v2)(context), "");
}

static void do_release(const struct command *c) {
    const char *what = c->word[0];
    CUdevice of = (CUdevice)number(c, 1);
    CUresult r;
    if (strcmp(what, "release") == 0)
        r = CU(cuDevicePrimaryCtxRelease_v2)(of);
    else if (strcmp(what, "releasev1") == 0)
        r = CU(cuDevicePrimaryCtxRelease)(of);
    else if (strcmp(what, "reset") == 0)
        r = CU(cuDevicePrimaryCtxReset_v2)(of);
    else
        r = CU(cuDevicePrimaryCtxReset)(of);
    answer(c, r, "");
}

static void release_at_end(CUcontext context, void *key, void *value) {
    (void)context, (void)key;
    (void)CU(cuDevicePrimaryCtxRelease_v2)((CUdevice)(intptr_t)value);
}

static void do_atend(const struct command *c) {
    typedef CUresult put(CUcontext, void *, void *, void (*)(CUcontext, void *, void *));
    static const unsigned char id[16] = {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11,
                                         0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93};
    CUcontext context = (CUcontext)(uintptr_t)lookup(c, 1, false)->value;
    const void *table = NULL;
    CUresult r = CU(cuGetExportTable)(&table, id);
    if (r == 0)
        r = ((put *)((void *const *)table)[0])(context, &table, (void *)(intptr_t)device,
                                               release_at_end);
    answer(c, r, "");
}

// Questions

static void do_info(const struct command *c) {
    size_t room = 0, total = 0;
    char more[64];
    unsigned int less = 0, all = 0;
    CUresult r;
    if (strcmp(c->word[0], "infov1") == 0) {
        r = CU(cuMemGetInfo)(&less, &all);
        room = less;
        total = all;
    } else {
        r = CU(cuMemGetInfo_v2)(&room, &total);
    }
    snprintf(more, sizeof more, "%zu %zu", room, total);
    answer(c, r, more);
}

static void do_total(const struct command *c) {
    size_t total = 0;
    char more[32];
    CUdevice of = (CUdevice)number_or(c, 1, (uint64_t)device);
    unsigned int less = 0;
    bool first = strcmp(c->word[0], "totalv1") == 0;
    CUresult r = first ? CU(cuDeviceTotalMem)(&less, of) : CU(cuDeviceTotalMem_v2)(&total, of);
    total = first ? less : total;
    snprintf(more, sizeof more, "%zu", total);
    answer(c, r, more);
}

static void do_nvmlmemory(const struct command *c) {
    bool v2 = strcmp(c->word[0], "nvmlmemory2") == 0;
    uint64_t a[4];
    char more[128];
    int r = nvml_memory((unsigned)number_or(c, 1, 0), v2, a);
    snprintf(more, sizeof more, "%" PRIu64 " %" PRIu64 " %" PRIu64, a[0], a[1], a[2]);
    if (v2)
        snprintf(more + strlen(more), sizeof more - strlen(more), " %" PRIu64, a[3]);
    answer(c, r, more);
}

static void do_nvmlprocesses(const struct command *c) {
    char list[1024], more[1100];
    unsigned count;
    int r = nvml_processes((unsigned)number_or(c, 4, 0), word(c, 1), (int)number(c, 2),
                           (unsigned)number(c, 3), &count, list, sizeof list);
    snprintf(more, sizeof more, "%u%s", count, list);
    answer(c, r, more);
}

static void do_devices(const struct command *c) {
    int count = 0;
    char more[16];
    CUresult r = CU(cuDeviceGetCount)(&count);
    snprintf(more, sizeof more, "%d", count);
    answer(c, r, more);
}

static void do_value(const struct command *c) {
    char more[32];
    snprintf(more, sizeof more, "%" PRIu64, lookup(c, 1, false)->value);
    answer(c, 0, more);
}

// The process

static CUresult begin(const char *how);

static void do_init(const struct command *c) {
    answer(c, begin("create"), "");
}

static void do_pid(const struct command *c) {
    char more[16];
    snprintf(more, sizeof more, "%d", (int)getpid());
    answer(c, 0, more);
}

static void do_exec(const struct command *c) {
    char *arguments[WORDS + 1] = {NULL};
    for (int i = 1; i < c->words; i++)
        arguments[i - 1] = c->word[i];
    word(c, 1);
    execvp(arguments[0], arguments);
    answer(c, errno, "");
}

static void do_closefds(const struct command *c) {
    for (int fd = 3; fd < 4096; fd++)
        close(fd);
    answer(c, 0, "");
}

static void do_reload(const struct command *c) {
    cu_close();
    CUresult r = cu_open();
    if (r == 0)
        r = CU(cuInit)(0);
    answer(c, r, "");
}

static void do_sleep(const struct command *c) {
    usleep((useconds_t)number(c, 1) * 1000);
    answer(c, 0, "");
}

static void do_hold(const struct command *c) {
    char buffer[64];
    answer(c, 0, "");
    while (read(0, buffer, sizeof buffer) > 0)
        ;
}

static void do_print(const struct command *c) {
    answer(c, 0, "");
}

static void do_exit(const struct command *c) {
    exit((int)number(c, 1));
}

static void do_kill(const struct command *c) {
    kill(getpid(), (int)number(c, 1));
    answer(c, 0, "");
}

static const struct {
    const char *name;
    void (*run)(const struct command *);
} commands[] = {
    {"alloc", do_alloc},
    {"allocv1", do_alloc},
    {"managed", do_alloc},
    {"allocasync", do_alloc},
    {"allocptsz", do_alloc},
    {"allocpool", do_alloc},
    {"poolptsz", do_alloc},
    {"pitch", do_pitch},
    {"pitchv1", do_pitch},
    {"free", do_free},
    {"freev1", do_free},
    {"freeasync", do_free},
    {"freeptsz", do_free},
    {"freeunknown", do_freeunknown},
    {"write", do_write},
    {"read", do_read},
    {"fill", do_fill},
    {"many", do_many},
    {"freemany", do_freemany},
    {"pairs", do_pairs},
    {"asyncpairs", do_asyncpairs},
    {"threads", do_threads},
    {"array", do_array},
    {"arrayv1", do_array},
    {"array3d", do_array},
    {"array3dv1", do_array},
    {"arraydestroy", do_arraydestroy},
    {"mipmap", do_array},
    {"mipmapdestroy", do_arraydestroy},
    {"create", do_create},
    {"createhost", do_create},
    {"createtiles", do_create},
    {"maptiles", do_maptiles},
    {"maptilesptsz", do_maptiles},
    {"mipmaptiles", do_maptiles},
    {"mipmaptilesptsz", do_maptiles},
    {"maptail", do_maptail},
    {"multicast", do_multicast},
    {"multicastadd", do_multicastadd},
    {"bindmem", do_bind},
    {"bindaddr", do_bind},
    {"unbind", do_unbind},
    {"places", do_places},
    {"releasemem", do_releasemem},
    {"reserve", do_reserve},
    {"map", do_map},
    {"unmap", do_unmap},
    {"retain", do_retain},
    {"racethreads", do_threads},
    {"mapthreads", do_threads},
    {"stream", do_stream},
    {"streammany", do_streammany},
    {"streamdestroy", do_streamdestroy},
    {"streamdestroyv1", do_streamdestroy},
    {"streamunknown", do_streamunknown},
    {"sync", do_sync},
    {"query", do_query},
    {"gate", do_gate},
    {"open", do_open},
    {"delay", do_delay},
    {"syncptsz", do_syncptsz},
    {"syncevent", do_syncevent},
    {"syncall", do_syncall},
    {"syncof", do_syncof},
    {"capture", do_capture},
    {"endcapture", do_endcapture},
    {"captureto", do_captureto},
    {"capturetoptsz", do_captureto},
    {"capturing", do_capturing},
    {"pool", do_pool},
    {"poolmanaged", do_pool},
    {"poolhost", do_pool},
    {"poolshared", do_pool},
    {"poolmost", do_pool},
    {"poolshow", do_poolcall},
    {"poolrace", do_poolrace},
    {"poolexport", do_poolexport},
    {"poolimport", do_poolimport},
    {"ptrexport", do_ipcget},
    {"ptrimport", do_ptrimport},
    {"advise", do_advise},
    {"advisev2", do_advise},
    {"prefetch", do_prefetch},
    {"prefetchptsz", do_prefetch},
    {"prefetchv2", do_prefetch},
    {"prefetchv2ptsz", do_prefetch},
    {"prefetchbatch", do_batch},
    {"prefetchbatchptsz", do_batch},
    {"discard", do_batch},
    {"discardptsz", do_batch},
    {"discardprefetch", do_batch},
    {"discardprefetchptsz", do_batch},
    {"peer", do_peer},
    {"unpeer", do_peer},
    {"access", do_access},
    {"poolnow", do_pool},
    {"pooldefault", do_pool},
    {"pooldestroy", do_poolcall},
    {"pooluse", do_poolcall},
    {"pooluse13", do_poolcall},
    {"pooltrim", do_poolcall},
    {"poolkeep", do_poolcall},
    {"poolholds", do_poolcall},
    {"graph", do_graph},
    {"graphdestroy", do_graphdestroy},
    {"graphalloc", do_graphalloc},
    {"graphnode", do_graphalloc},
    {"graphnodev2", do_graphalloc},
    {"graphchild", do_graphchild},
    {"graphmove", do_graphchild},
    {"graphmovev2", do_graphchild},
    {"graphif", do_graphif},
    {"graphclone", do_graphclone},
    {"graphupdate", do_graphupdate},
    {"graphupdatev1", do_graphupdate},
    {"graphfree", do_graphfree},
    {"instantiate", do_instantiate},
    {"instantiatev1", do_instantiate},
    {"instantiatev2", do_instantiate},
    {"instantiatewith", do_instantiate},
    {"withptsz", do_instantiate},
    {"execdestroy", do_exec_graph},
    {"upload", do_exec_graph},
    {"uploadptsz", do_exec_graph},
    {"launch", do_exec_graph},
    {"launchptsz", do_exec_graph},
    {"graphtrim", do_graphtrim},
    {"graphholds", do_graphholds},
    {"createshared", do_create},
    {"exportfd", do_exportfd},
    {"importfd", do_importfd},
    {"exportfabric", do_exportfabric},
    {"importfabric", do_importfabric},
    {"ipcget", do_ipcget},
    {"ipcopen", do_ipcopen},
    {"ipcopenv1", do_ipcopen},
    {"ipcclose", do_ipcclose},
    {"external", do_external},
    {"externalmap", do_externalmap},
    {"externalarray", do_externalarray},
    {"externaldestroy", do_externaldestroy},
    {"semaphore", do_semaphore},
    {"semsignal", do_semaphore},
    {"semwait", do_semaphore},
    {"semdestroy", do_semaphore},
    {"host", do_host},
    {"hostv1", do_host},
    {"hostflags", do_host},
    {"register", do_host},
    {"registerv1", do_host},
    {"freehost", do_freehost},
    {"unregister", do_freehost},
    {"context", do_context},
    {"primary", do_context},
    {"use", do_use},
    {"contextv1", do_context},
    {"contextv3", do_context},
    {"contextv4", do_context},
    {"contextgl", do_context},
    {"contextglv1", do_context},
    {"contextvdpau", do_context},
    {"contextvdpauv1", do_context},
    {"runtime", do_context},
    {"unseen", do_context},
    {"attach", do_attach},
    {"detach", do_detach},
    {"push", do_push},
    {"pushv1", do_push},
    {"pop", do_pop},
    {"popv1", do_pop},
    {"green", do_green},
    {"greencontext", do_green},
    {"greenstream", do_green},
    {"greendestroy", do_greendestroy},
    {"destroy", do_destroy},
    {"destroyv1", do_destroy},
    {"release", do_release},
    {"atend", do_atend},
    {"releasev1", do_release},
    {"reset", do_release},
    {"resetv1", do_release},
    {"info", do_info},
    {"infov1", do_info},
    {"total", do_total},
    {"totalv1", do_total},
    {"nvmlmemory", do_nvmlmemory},
    {"nvmlmemory2", do_nvmlmemory},
    {"nvmlprocesses", do_nvmlprocesses},
    {"devices", do_devices},
    {"value", do_value},
    {"pid", do_pid},
    {"exec", do_exec},
    {"closefds", do_closefds},
    {"reload", do_reload},
    {"sleep", do_sleep},
    {"hold", do_hold},
    {"print", do_print},
    {"exit", do_exit},
    {"kill", do_kill},
    {"init", do_init},
};

// fork … join: the child runs the commands between, the parent skips them.
static bool skipping;
static bool in_child;
static pid_t child;

static void start_child(bool raw) {
    fflush(stdout);
    child = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    in_child = child == 0;
    skipping = child > 0;
}

static void join_child(void) {
    int status = 0;
    if (in_child) {
        fflush(stdout);
        _exit(0);
    }
    skipping = false;
    waitpid(child, &status, 0);
    printf("fork ok %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    fflush(stdout);
}

static void run(char *text) {
    struct command c = {.words = 0};
    char *rest = NULL;
    for (char *w = strtok_r(text, " \t\r\n", &rest); w && c.words < WORDS;
         w = strtok_r(NULL, " \t\r\n", &rest))
        c.word[c.words++] = w;
    if (c.words == 0 || c.word[0][0] == '#')
        return;
    if (strcmp(c.word[0], "join") == 0) {
        join_child();
        return;
    }
    if (skipping)
        return;
    if (strcmp(c.word[0], "fork") == 0 || strcmp(c.word[0], "rawfork") == 0) {
        start_child(c.word[0][0] == 'r');
        return;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].name, c.word[0]) == 0) {
            commands[i].run(&c);
            return;
        }
    }
    misunderstood(&c);
}

static void run_line(char *line, bool from_stdin) {
    char *rest = NULL;
    for (char *one = strtok_r(line, ";", &rest); one; one = strtok_r(NULL, ";", &rest))
        run(one);
    // The child reads on from the same stdin, up to its join.
    if (skipping && from_stdin)
        join_child();
}

static CUresult begin(const char *how) {
    CUcontext context = NULL;
    CUresult r = CU(cuInit)(0);
    if (r == 0 && strcmp(how, "none") != 0)
        r = make_context(how, &context);
    if (r == 0) {
        struct name *n = &names[n_names++];
        strcpy(n->text, "first"); // the context's name
        n->value = (uintptr_t)context;
    }
    return r;
}

int main(int argc, char **argv) {
    const char *how = "create";
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--device") == 0)
            device = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--context") == 0)
            how = argv[i + 1];
        else
            misunderstood(&(struct command){{argv[i]}, 1});
    }
    if (cu_open() != 0)
        return 1;
    CUresult r = begin(how);
    if (r != 0) {
        printf("init err %d\n", r);
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    if (i < argc && strcmp(argv[i], "-") != 0) {
        for (; i < argc; i++)
            run_line(argv[i], false);
        return 0;
    }
    static char line[4096];
    setvbuf(stdin, NULL, _IONBF, 0); // a forked child takes no more than its own lines
    while (fgets(line, sizeof line, stdin))
        run_line(line, true);
    return 0;
}
