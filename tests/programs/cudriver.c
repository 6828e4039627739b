// SPDX-License-Identifier: Apache-2.0
// Finds the driver's functions in the way that was compiled in (cudriver.h).
#include "cudriver.h"

#include <dlfcn.h>
#include <stdio.h>

#ifdef HOW_LINK

int cu_open(void) {
    return 0;
}

void cu_close(void) {}

#else

struct cu_functions cu;
static void *handle;

// Stands for a function that the driver lacks, and fails when it is called.
static CUresult lacking(void) {
    enum { NOT_FOUND = 500 };
    return NOT_FOUND;
}

// Converts an object pointer to a function pointer, which POSIX permits and ISO C does not.
static void *or_lacking(void *found) {
    return found ? found : (void *)lacking;
}
#define STORE(symbol, value) *(void **)&cu.symbol = or_lacking(value)

#ifdef HOW_GPA
typedef CUresult get_proc_address(const char *, void **, int, uint64_t, int *);

static int look_up(void) {
    get_proc_address *gpa = (get_proc_address *)dlsym(handle, "cuGetProcAddress_v2");
    if (!gpa) {
        fprintf(stderr, "cudaprog: no cuGetProcAddress_v2\n");
        return -1;
    }
    void *p;
#define LOOK_UP(symbol, base, version, flags, parameters)                                          \
    p = NULL;                                                                                      \
    STORE(symbol, gpa(#base, &p, version, flags, NULL) == 0 ? p : NULL);
    CU_FUNCTIONS(LOOK_UP)
    return 0;
}
#else
static int look_up(void) {
#define LOOK_UP(symbol, base, version, flags, parameters) STORE(symbol, dlsym(handle, #symbol));
    CU_FUNCTIONS(LOOK_UP)
    return 0;
}
#endif

int cu_open(void) {
    handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "cudaprog: %s\n", dlerror());
        return -1;
    }
    return look_up();
}

void cu_close(void) {
    if (handle)
        dlclose(handle);
    handle = NULL;
}

#endif
