// SPDX-License-Identifier: Apache-2.0
// mixed: a program that uses CUDA, OpenCL and Vulkan side by side, and executes commands
// (script.h). It prints "ready" first. A status is the error code of the interface.
//
//   cuda NAME SIZE; opencl NAME SIZE; vulkan NAME SIZE
//                    makes a context or a logical device, with a block of SIZE bytes (0: none)
//   end NAME         frees its memory and destroys it
//   rounds WHICH THREADS TIMES FILE
//                    Each thread does TIMES rounds: it makes objects and ends them. It is in the
//                    count in FILE (inside.h) from after the first is made until before the last is
//                    ended. WHICH with / between interfaces: one object, of the next interface each
//                    round. WHICH with +: one object of each interface, beginning with the next one
//                    each round, and ended in a different order each round. "ok MOST"
//   pid; kill SIGNAL; abort       PoCL returns from its handler if SIGABRT is only sent
#include "mixed.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inside.h"
#include "script.h"

static const struct interface *interface_named(const char *name) {
    for (size_t i = 0; i < INTERFACES; i++)
        if (strcmp(interfaces[i].name, name) == 0)
            return &interfaces[i];
    script_misunderstood();
}

static void do_make(void) {
    struct object *o = script_object(1, sizeof *o, true);
    *o = (struct object){.of = interface_named(script_text(0))};
    script_answer(o->of->make(o, script_number(2)));
}

static void do_end(void) {
    struct object *o = script_object(1, sizeof *o, false);
    script_answer(o->of->end(o));
}

// Rounds

static const struct interface *which[INTERFACES]; // interfaces of the command, used in turn
static size_t n_which;
static size_t at_once; // number of objects that a thread has at once
static uint64_t times;
static _Atomic int failed; // first error

static bool good(int status, const struct interface *of, const char *what) {
    int none = 0;
    if (status != 0 && atomic_compare_exchange_strong(&failed, &none, status))
        fprintf(stderr, "%s %s: %d\n", what, of->name, status);
    return status == 0;
}

// Makes a round's objects. Returns how many were made: only these must be ended.
static size_t make_objects(struct object *objects, size_t from) {
    size_t made = 0;
    for (; made < at_once; made++) {
        struct object *o = &objects[made];
        *o = (struct object){.of = which[(from + made) % n_which]};
        if (!good(o->of->make(o, 65536), o->of, "make"))
            break;
        if (made == 0)
            inside_enter();
    }
    return made;
}

static void end_objects(struct object *objects, size_t made, size_t from) {
    for (size_t i = 0; i < made; i++) {
        struct object *o = &objects[(from + i) % made];
        if (i == made - 1)
            inside_leave();
        good(o->of->end(o), o->of, "end");
    }
}

static void *come_and_go(void *arg) {
    size_t thread = (size_t)(uintptr_t)arg;
    for (uint64_t i = 0; i < times && atomic_load(&failed) == 0; i++) {
        struct object objects[INTERFACES];
        size_t made = make_objects(objects, thread + i);
        nanosleep(&(struct timespec){0, 200000}, NULL); // gives other threads time to come
        end_objects(objects, made, thread + i / n_which);
    }
    return NULL;
}

static void read_which(const char *text) {
    char copy[64];
    char *rest = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    n_which = 0;
    for (char *one = strtok_r(copy, "/+", &rest); one; one = strtok_r(NULL, "/+", &rest))
        if (n_which == INTERFACES)
            script_misunderstood();
        else
            which[n_which++] = interface_named(one);
    at_once = strchr(text, '+') ? n_which : 1;
}

static void do_rounds(void) {
    pthread_t threads[64];
    uint64_t n = script_number(2);
    read_which(script_text(1));
    times = script_number(3);
    if (n > 64 || inside_open(script_text(4)) != 0)
        script_misunderstood();
    for (uint64_t i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, come_and_go, (void *)(uintptr_t)i) != 0)
            abort();
    for (uint64_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    script_value(failed, "%d", inside_most());
}

static void do_pid(void) {
    script_value(0, "%d", (int)getpid());
}

static void do_kill(void) {
    kill(getpid(), (int)script_number(1));
}

static void do_abort(void) {
    abort();
}

static const struct script_verb verbs[] = {
    {"cuda", do_make},     {"opencl", do_make}, {"vulkan", do_make}, {"end", do_end},
    {"rounds", do_rounds}, {"pid", do_pid},     {"kill", do_kill},   {"abort", do_abort},
};

int main(int argc, char **argv) {
    printf("ready\n");
    fflush(stdout);
    script_run(argc, argv, verbs, sizeof verbs / sizeof verbs[0]);
    return 0;
}
