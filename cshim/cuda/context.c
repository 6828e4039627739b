// SPDX-License-Identifier: Apache-2.0
#include "cuda/context.h"

#include "core/admit.h"
#include "core/tell.h"
#include "cuda/device.h"
#include "cuda/late.h"
#include "cuda/state.h"

static uint64_t key_of(ga_context context) {
    return (uint64_t)(uintptr_t)context;
}

bool ga_cuda_context_find(struct ga_root *root, uint64_t key, struct ga_entry *entry) {
    return ga_self_find(&ga_cuda(root)->contexts, key, entry);
}

// A driver may make the handle of a green context and that of its context from one address.
static struct ga_key key_of_green(ga_green green) {
    return (struct ga_key){(uint64_t)(uintptr_t)green, GA_SPACE_CUDA_GREEN};
}

bool ga_cuda_context_find_green(struct ga_root *root, ga_green green, struct ga_entry *entry) {
    return ga_self_find_key(&ga_cuda(root)->contexts, key_of_green(green), entry);
}

static void give_back(struct ga_root *root, const struct ga_entry *entry) {
    if (entry->kind != GA_CUDA_CONTEXT_OF_GREEN && entry->kind != GA_CUDA_CONTEXT_UNTOLD)
        ga_admit_return(root, GA_OBJECT_CONTEXT, entry->device, 1, (uint32_t)entry->bytes,
                        entry->tag);
}

bool ga_cuda_context_ask(struct ga_cuda_context_ask *ask, ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    if (root)
        ga_tell_not_making(root);
    return ga_cuda_context_ask_with_it(ask, device);
}

bool ga_cuda_context_ask_with_it(struct ga_cuda_context_ask *ask, ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    ask->root = NULL;
    if (!root)
        return !ga_root_denies();
    int number = ga_cuda_device_number(root, device);
    if (number < 0)
        return true; // the driver alone decides
    ask->device = (uint32_t)number;
    ga_tell_making(root, ask->device);
    if (!ga_admit_object(root, GA_OBJECT_CONTEXT, ask->device, 0, &ask->tag)) {
        ga_tell_made(root, ask->device);
        return false;
    }
    ask->root = root;
    return true;
}

void ga_cuda_context_unmade(const struct ga_cuda_context_ask *ask) {
    struct ga_entry entry = {.bytes = ga_self.number,
                             .device = (uint8_t)ask->device,
                             .tag = ask->tag,
                             .kind = GA_CUDA_CONTEXT_CREATED};
    if (!ask->root)
        return;
    give_back(ask->root, &entry);
    ga_tell_made(ask->root, ask->device);
}

// One that another thread has met meanwhile, or that ended out of our sight, was counted already.
void ga_cuda_context_made(const struct ga_cuda_context_ask *ask, const struct ga_entry *made) {
    struct ga_entry old = {0};
    if (!ask->root)
        return;
    struct ga_entry entry = *made;
    entry.bytes = ga_self.number;
    entry.device = (uint8_t)ask->device;
    entry.tag = ask->tag;
    bool put = ga_self_put(&ga_cuda(ask->root)->contexts, &entry, &old);
    if (entry.space == GA_SPACE_PLAIN)
        ga_cuda_late_made(ask->root, entry.key);
    // Without memory to remember it by it stays counted.
    if (put && old.key)
        give_back(ask->root, &old);
    ga_tell_made(ask->root, ask->device);
}

uint64_t ga_cuda_context_notice(struct ga_root *root, ga_context context, uint32_t device,
                                uint8_t kind, uint64_t epoch) {
    struct ga_entry entry = {
        .key = key_of(context), .bytes = ga_self.number, .device = (uint8_t)device, .kind = kind};
    struct ga_entry old = {0};
    struct ga_entry untold = entry;
    untold.kind = GA_CUDA_CONTEXT_UNTOLD;
    ga_self_enter();
    // What was merely met does not take away what is known better.
    bool known = ga_table_find(&ga_cuda(root)->contexts, entry.key, &old) && old.device == device;
    bool put = !known && ga_table_put(&ga_cuda(root)->contexts, &untold, &old);
    ga_self_leave();
    if (known)
        return old.kind == GA_CUDA_CONTEXT_OF_GREEN ? old.context : entry.key;
    if (!put || (old.key && old.device == device))
        return entry.key;
    if (old.key) // the address of one that ended unseen, used again for another device
        give_back(root, &old);
    ga_admit_object(root, GA_OBJECT_CONTEXT, device, GA_FLAG_NOTICED, &entry.tag);
    ga_self_put(&ga_cuda(root)->contexts, &entry, &old);
    if (old.key)
        give_back(root, &old);
    if (ga_cuda_late_ended(root, entry.key, epoch)) // and it may have been forgotten before
        ga_cuda_context_forget(root, entry.key);
    return entry.key;
}

ga_result ga_cuda_context_created(const struct ga_cuda_context_ask *ask, ga_result result,
                                  const ga_context *context) {
    struct ga_entry made = {.kind = GA_CUDA_CONTEXT_CREATED};
    if (result != GA_CUDA_SUCCESS) {
        ga_cuda_context_unmade(ask);
        return result;
    }
    made.key = key_of(*context);
    ga_cuda_context_made(ask, &made);
    return result;
}

static void forget(struct ga_root *root, struct ga_key key) {
    struct ga_entry entry;
    bool known = ga_self_take_key(&ga_cuda(root)->contexts, key, &entry);
    atomic_fetch_add(&ga_cuda(root)->context_epoch, 1);
    if (known)
        give_back(root, &entry);
}

void ga_cuda_context_forget(struct ga_root *root, uint64_t context) {
    forget(root, (struct ga_key){context, GA_SPACE_PLAIN});
}

void ga_cuda_context_forget_green(struct ga_root *root, ga_green green) {
    forget(root, key_of_green(green));
}
