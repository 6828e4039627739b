// SPDX-License-Identifier: Apache-2.0
// Releases the bytes and slots of objects and contexts that end (call.h).
#include "opencl/call.h"

#include "core/admit.h"
#include "opencl/state.h"

__thread struct ga_opencl_call ga_opencl_call;

void ga_opencl_call_release_bytes(void) {
    struct ga_entry *bytes = &ga_opencl_call.bytes;
    struct ga_root *root = bytes->bytes ? ga_root_get() : NULL;
    if (root)
        ga_release_entry(root, bytes);
    bytes->bytes = 0;
}

// ga_root_get returns NULL in a signal handler that has interrupted this library. Then the entry
// stays, and its bytes stay charged, until another object has the same key.
void ga_opencl_call_ended(struct ga_key key) {
    struct ga_root *root = ga_root_get();
    struct ga_entry *bytes = &ga_opencl_call.bytes;
    struct ga_entry e;
    if (!root || !ga_remove_key(root, key, &e))
        return;
    if (bytes->bytes && (e.device != bytes->device || e.tag != bytes->tag))
        ga_opencl_call_release_bytes();
    e.bytes += bytes->bytes;
    *bytes = e;
    if (!ga_opencl_call_is_active())
        ga_opencl_call_release_bytes();
}

void ga_opencl_call_context_ended(struct ga_opencl_context_slots *context) {
    context->next = ga_opencl_call.contexts;
    ga_opencl_call.contexts = context;
    if (!ga_opencl_call_is_active())
        ga_opencl_call_end_all();
}

// Releases the slots of a context, and frees its record. A forked child has its parent's contexts
// in its memory, but not their slots: there the generation differs.
static void release_slots(struct ga_root *root, struct ga_opencl_context_slots *context) {
    if (context->generation != atomic_load(&root->generation))
        return;
    ga_slots_release(root, &context->slots);
    context->generation = 0;
    ga_records_release(&ga_opencl(root)->contexts, context);
}

void ga_opencl_call_end_all(void) {
    struct ga_root *root = ga_root_get();
    ga_opencl_call_release_bytes();
    while (root && ga_opencl_call.contexts) {
        struct ga_opencl_context_slots *context = ga_opencl_call.contexts;
        ga_opencl_call.contexts = context->next;
        release_slots(root, context);
    }
}
