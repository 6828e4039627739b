// SPDX-License-Identifier: Apache-2.0
// A program for GCC's own GPU runtime: libgomp, whose plug-in for NVIDIA devices opens the driver
// itself. It prints "ready", then answers commands on stdin, one in a line:
//
//   alloc NAME BYTES    ok, or none if the runtime has no memory
//   copy NAME BYTES N   copies to the device and back in each of N queues: right, or wrong
//   free NAME           ok
//   memory              ok TOTAL FREE, as the driver has told the runtime
//   other NAME BYTES    alloc by OpenMP's interface, on device 1
//   pid                 ok PID
#include <openacc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Declarations of <omp.h>, which only GCC can compile.
void *omp_target_alloc(size_t bytes, int device);
void omp_target_free(void *at, int device);

struct block {
    char *at;
    int device; // 0: OpenACC's; 1: OpenMP's
};
static struct block blocks[128];

static const char *copy(char *there, size_t bytes, int queues) {
    const char *result = "right";
    char *out = malloc(bytes);
    char *back = calloc((size_t)queues, bytes);
    memset(out, 'x', bytes);
    for (int queue = 0; queue < queues; queue++) {
        acc_memcpy_to_device_async(there, out, bytes, queue);
        acc_memcpy_from_device_async(back + (size_t)queue * bytes, there, bytes, queue);
    }
    acc_wait_all();
    for (int queue = 0; queue < queues; queue++)
        if (memcmp(back + (size_t)queue * bytes, out, bytes) != 0)
            result = "wrong";
    free(out);
    free(back);
    return result;
}

static void answer(const char *line) {
    char verb[16] = "";
    char name = 0;
    size_t bytes = 0;
    int queues = 0;
    sscanf(line, "%15s %c %zu %d", verb, &name, &bytes, &queues);
    struct block *b = &blocks[name & 127];
    if (!strcmp(verb, "alloc")) {
        *b = (struct block){.at = acc_malloc(bytes)};
        printf("alloc %c %s\n", name, b->at ? "ok" : "none");
    } else if (!strcmp(verb, "other")) {
        *b = (struct block){.at = omp_target_alloc(bytes, 1), .device = 1};
        printf("other %c %s\n", name, b->at ? "ok" : "none");
    } else if (!strcmp(verb, "copy")) {
        printf("copy %c %s\n", name, copy(b->at, bytes, queues));
    } else if (!strcmp(verb, "free")) {
        if (b->device)
            omp_target_free(b->at, b->device);
        else
            acc_free(b->at);
        printf("free %c ok\n", name);
    } else if (!strcmp(verb, "memory")) {
        printf("memory ok %zu %zu\n", acc_get_property(0, acc_device_nvidia, acc_property_memory),
               acc_get_property(0, acc_device_nvidia, acc_property_free_memory));
    } else if (!strcmp(verb, "pid")) {
        printf("pid ok %d\n", (int)getpid());
    } else {
        printf("%s what?\n", verb);
    }
}

int main(void) {
    char line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (acc_get_num_devices(acc_device_nvidia) < 1) {
        fprintf(stderr, "openacc: libgomp sees no NVIDIA device\n");
        return 1;
    }
    acc_init(acc_device_nvidia);
    puts("ready");
    while (fgets(line, sizeof line, stdin))
        answer(line);
    acc_shutdown(acc_device_nvidia);
    return 0;
}
