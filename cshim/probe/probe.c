// SPDX-License-Identifier: Apache-2.0
// gpuarb-probe: an ordinary program that `gpuarb doctor` starts with the library preloaded, to see
// which calls are intercepted. It opens an interface's library as programs do, looks up its
// functions in each way, and checks whether their addresses lie in libgpuarb.so. It makes no
// context or logical device and allocates no memory, so it never asks the daemon for anything.
// vulkan.c has the part for Vulkan.
//
//   gpuarb-probe LIBRARY shim|cuda|nvml|opencl|vulkan
// Each process probes one interface, so that a driver that crashes or hangs spoils no other answer.
// The answer is the last line of stdout that begins with the interface, because drivers print, too:
//
//   INTERFACE \t absent|caught|not caught|broken \t PATH \t DEVICES \t DETAIL
//
//   gpuarb-probe - memory
//
// The daemon starts the probe in this way to ask CUDA for the memory of devices that NVML does not
// report. This makes no context either. It prints a line for each device:
//
//   memory \t UUID as 32 digits \t BYTES
#include "probe/probe.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// Names of the wrapped functions, from the lists that the library is built from.
#define GA_HOOK(symbol, ...) #symbol,
#define GA_NEED(symbol, ...)
static const char *const cuda_rows[] = {
#include "cuda/hooks.def"
    NULL};
static const char *const nvml_rows[] = {
#include "nvml/hooks.def"
    NULL};
static const char *const opencl_rows[] = {
#include "opencl/hooks.def"
    NULL};
#undef GA_HOOK
#undef GA_NEED

// Returns the object that an address lies in; NULL: none.
static struct link_map *object_of(const void *address) {
    Dl_info info;
    void *object = NULL;
    return dladdr1(address, &info, &object, RTLD_DL_LINKMAP) ? object : NULL;
}

static const char *path_of(const struct link_map *object) {
    return object && object->l_name[0] ? object->l_name : "no library";
}

void ga_probe_check(struct ga_probe *p, const char *name, const char *way, const void *function) {
    if (!function)
        return;
    p->looked++;
    struct link_map *object = object_of(function);
    if (object && object == p->library)
        return;
    size_t length = strlen(p->misses);
    if (p->missed++ < 3)
        (void)snprintf(p->misses + length, sizeof p->misses - length, "%s%s by %s in %s",
                       length ? ", " : "", name, way, path_of(object));
}

_Noreturn void ga_probe_answer(const struct ga_probe *p, const char *outcome, const char *detail) {
    struct link_map *driver = NULL;
    if (p->driver)
        (void)dlinfo(p->driver, RTLD_DI_LINKMAP, &driver);
    printf("\n%s\t%s\t%s\t%u\t%s\n", p->interface, outcome, driver ? driver->l_name : "",
           p->devices, detail);
    (void)fflush(stdout);
    _exit(0); // skip the exit handlers of the driver
}

// Prints the result of all look-ups, and ends the process.
static _Noreturn void answer(const struct ga_probe *p) {
    char detail[640];
    if (!p->missed)
        ga_probe_answer(p, "caught", p->note);
    (void)snprintf(detail, sizeof detail, "%zu of %zu look-ups end elsewhere: %s%s", p->missed,
                   p->looked, p->misses, p->missed > 3 ? ", …" : "");
    ga_probe_answer(p, "not caught", detail);
}

static void open_driver(struct ga_probe *p) {
    p->driver = dlopen(p->file, RTLD_LAZY | RTLD_GLOBAL);
    if (p->driver)
        return;
    const char *error = dlerror();
    size_t length = strlen(p->file);
    // The linker reports a missing dependency of this library in the same words, but with another
    // name.
    bool absent = error && strncmp(error, p->file, length) == 0 &&
                  strstr(error, "cannot open shared object file: No such file");
    ga_probe_answer(p, absent ? "absent" : "broken", error ? error : "it does not load");
}

// Looks up the functions as two kinds of programs get them: by dlsym in the library, and by
// linking.
static void look_up(struct ga_probe *p, const char *const *rows) {
    size_t there = 0;
    for (; *rows; rows++) {
        const void *function = dlsym(p->driver, *rows);
        if (!function)
            continue;
        there++;
        ga_probe_check(p, *rows, "dlsym", function);
        ga_probe_check(p, *rows, "linking", dlsym(RTLD_DEFAULT, *rows));
    }
    if (!there)
        ga_probe_answer(p, "broken", "it has none of the interface's functions");
}

// Calls a function of the driver that returns a number through a pointer. Returns its result; −1:
// missing.
static int call(struct ga_probe *p, const char *name, unsigned int *count) {
    int (*function)(unsigned int *) = (int (*)(unsigned int *))dlsym(p->driver, name);
    return function ? function(count) : -1;
}

// Removes the version from a function's name: asked for that name, the driver returns the newest
// version.
static void base_of(char *base, size_t size, const char *name) {
    (void)snprintf(base, size, "%s", name);
    char *tail = strrchr(base, '_');
    while (tail && (strcmp(tail, "_ptsz") == 0 || strcmp(tail, "_ptds") == 0 ||
                    (tail[1] == 'v' && tail[2] >= '0' && tail[2] <= '9'))) {
        *tail = '\0';
        tail = strrchr(base, '_');
    }
}

typedef int resolver(const char *name, void **function, int version, uint64_t flags);
typedef int resolver_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status);

// Asks the driver for its own newest functions. A function that is newer than libgpuarb.so shows
// here.
static void resolve(struct ga_probe *p, const char *name, int version) {
    resolver *v1 = (resolver *)dlsym(p->driver, "cuGetProcAddress");
    resolver_v2 *v2 = (resolver_v2 *)dlsym(p->driver, "cuGetProcAddress_v2");
    char base[80];
    base_of(base, sizeof base, name);
    for (uint64_t flags = 0; flags <= 2; flags += 2) { // 0: default; 2: per-thread default streams
        void *function = NULL;
        int status;
        if (v1 && v1(base, &function, version, flags) == 0)
            ga_probe_check(p, base, "cuGetProcAddress", function);
        function = NULL;
        if (v2 && v2(base, &function, version, flags, &status) == 0)
            ga_probe_check(p, base, "cuGetProcAddress_v2", function);
    }
}

static void probe_cuda(struct ga_probe *p) {
    look_up(p, cuda_rows);
    unsigned int version = 0;
    if (call(p, "cuDriverGetVersion", &version) == 0)
        for (size_t i = 0; cuda_rows[i]; i++)
            resolve(p, cuda_rows[i], (int)version);
    int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(p->driver, "cuInit");
    int result = init ? init(0) : -1;
    if (result == 0)
        (void)call(p, "cuDeviceGetCount", &p->devices);
    else
        (void)snprintf(p->note, sizeof p->note, "cuInit fails with %d", result);
}

static void probe_nvml(struct ga_probe *p) {
    look_up(p, nvml_rows);
    int (*init)(void) = (int (*)(void))dlsym(p->driver, "nvmlInit_v2");
    int result = init ? init() : -1;
    if (result == 0)
        (void)call(p, "nvmlDeviceGetCount_v2", &p->devices);
    else
        (void)snprintf(p->note, sizeof p->note, "nvmlInit_v2 fails with %d", result);
}

typedef int cl_platforms(unsigned int room, void **platforms, unsigned int *count);
typedef int cl_devices(void *platform, uint64_t type, unsigned int room, void **devices,
                       unsigned int *count);
typedef void *cl_address(const char *name);
typedef void *cl_address_for(void *platform, const char *name);

// Probes the driver of one platform: its extension functions, and the number of its devices.
static void probe_platform(struct ga_probe *p, void *platform) {
    cl_devices *devices = (cl_devices *)dlsym(p->driver, "clGetDeviceIDs");
    cl_address_for *address_for =
        (cl_address_for *)dlsym(p->driver, "clGetExtensionFunctionAddressForPlatform");
    unsigned int count = 0;
    if (devices && devices(platform, 0xFFFFFFFF, 0, NULL, &count) == 0)
        p->devices += count;
    for (size_t i = 0; address_for && opencl_rows[i]; i++)
        ga_probe_check(p, opencl_rows[i], "clGetExtensionFunctionAddressForPlatform",
                       address_for(platform, opencl_rows[i]));
}

static void probe_opencl(struct ga_probe *p) {
    look_up(p, opencl_rows);
    cl_platforms *get = (cl_platforms *)dlsym(p->driver, "clGetPlatformIDs");
    cl_address *address = (cl_address *)dlsym(p->driver, "clGetExtensionFunctionAddress");
    void *platforms[16];
    unsigned int count = 0;
    int result = get ? get(16, platforms, &count) : -1;
    if (result != 0)
        (void)snprintf(p->note, sizeof p->note, "clGetPlatformIDs fails with %d", result);
    for (unsigned int i = 0; result == 0 && i < count && i < 16; i++)
        probe_platform(p, platforms[i]);
    for (size_t i = 0; address && opencl_rows[i]; i++)
        ga_probe_check(p, opencl_rows[i], "clGetExtensionFunctionAddress", address(opencl_rows[i]));
}

static void probe_shim(struct ga_probe *p) {
    if (!p->library)
        ga_probe_answer(p, "not caught", "");
}

typedef int cu_total(size_t *bytes, int device);
typedef int cu_uuid(unsigned char uuid[16], int device);

static _Noreturn void probe_memory(struct ga_probe *p) {
    int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(p->driver, "cuInit");
    int (*get)(int *, int) = (int (*)(int *, int))dlsym(p->driver, "cuDeviceGet");
    cu_total *total_of = (cu_total *)dlsym(p->driver, "cuDeviceTotalMem_v2");
    cu_uuid *uuid_of = (cu_uuid *)dlsym(p->driver, "cuDeviceGetUuid_v2");
    if (!uuid_of)
        uuid_of = (cu_uuid *)dlsym(p->driver, "cuDeviceGetUuid");
    int result = init ? init(0) : -1;
    if (result != 0 || !get || !total_of || !uuid_of || call(p, "cuDeviceGetCount", &p->devices)) {
        fprintf(stderr, "CUDA does not tell the memory of devices: cuInit returns %d\n", result);
        exit(1);
    }
    for (unsigned int i = 0; i < p->devices; i++) {
        unsigned char uuid[16];
        size_t total = 0;
        int device;
        if (get(&device, (int)i) || uuid_of(uuid, device) || total_of(&total, device))
            continue;
        printf("\nmemory\t");
        for (size_t b = 0; b < sizeof uuid; b++)
            printf("%02x", uuid[b]);
        printf("\t%zu\n", total);
    }
    (void)fflush(stdout);
    _exit(0);
}

static const struct {
    const char *interface, *file;
    void (*run)(struct ga_probe *);
} probes[] = {
    {"shim", NULL, probe_shim},
    {"cuda", "libcuda.so.1", probe_cuda},
    {"nvml", "libnvidia-ml.so.1", probe_nvml},
    {"opencl", "libOpenCL.so.1", probe_opencl},
    {"vulkan", "libvulkan.so.1", ga_probe_vulkan},
    {"memory", "libcuda.so.1", probe_memory},
};

int main(int argc, char **argv) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0}); // a driver that crashes must not leave a core file
    struct ga_probe p = {0};
    p.handle = argc == 3 ? dlopen(argv[1], RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (p.handle)
        (void)dlinfo(p.handle, RTLD_DI_LINKMAP, &p.library);
    for (size_t i = 0; argc == 3 && i < sizeof probes / sizeof *probes; i++) {
        if (strcmp(argv[2], probes[i].interface) != 0)
            continue;
        p.interface = probes[i].interface;
        p.file = probes[i].file;
        if (p.file)
            open_driver(&p);
        probes[i].run(&p);
        answer(&p);
    }
    (void)fputs("usage: gpuarb-probe LIBRARY shim|cuda|nvml|opencl|vulkan|memory\n", stderr);
    return 2;
}
