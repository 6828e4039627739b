// SPDX-License-Identifier: Apache-2.0
//
// hold BYTES...: allocates a block of each size on device 0, and prints "ready". Then it executes
// commands from stdin, one in a line, and answers "ok":
//
//   fork    starts a child that holds the descriptors until its death closes a pipe;
//           answers the child's PID
//   close   closes all descriptors above 2
//   exec    executes cat(1) in the process
//   alloc N allocates another block, and answers the driver's code

#include "testlib.h"

#include <sys/prctl.h>
#include <sys/wait.h>

static void fork_holder(void) {
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr p;
        CUcontext c;
        int n;
        CHECK(cuMemAlloc(&p, 1), 3);
        CHECK(CU(cuDeviceGetCount, int *)(&n), 3);
        CHECK(cuCtxGetCurrent(&c), 3);
        CHECK(cuInit(0), 3);
        printf("%d\n", (int)getpid());
        fflush(stdout);
        for (;;)
            pause();
    }
}

static void become_cat(void) {
    printf("ok\n");
    fflush(stdout);
    execlp("cat", "cat", (char *)NULL);
    exit(1);
}

int main(int argc, char **argv) {
    char line[128];
    CUdeviceptr p;
    setvbuf(stdin, NULL, _IONBF, 0);
    open_device(0);
    for (int i = 1; i < argc; i++)
        CHECK(cuMemAlloc(&p, strtoull(argv[i], NULL, 10)), 0);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "fork\n")) {
            fork_holder();
            continue;
        }
        if (!strcmp(line, "exec\n"))
            become_cat();
        if (!strncmp(line, "alloc ", 6)) {
            printf("%d\n", cuMemAlloc(&p, strtoull(line + 6, NULL, 10)));
        } else {
            for (int fd = 3; fd < 1024; fd++)
                close(fd);
            printf("ok\n");
        }
        fflush(stdout);
    }
    return 0;
}
