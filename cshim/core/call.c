// SPDX-License-Identifier: Apache-2.0
// State of one request while it is sent in one or more attempts. call.h describes the functions.
#include "core/call.h"

#include <errno.h>

#include "core/interface.h"

#define ROOM_MS 5000 // how long a connection is tried while the daemon has no room for it

bool ga_call_is_final(const struct ga_reply *reply) {
    return reply->header.status != GA_STATUS_SHUTTING_DOWN &&
           reply->header.status != GA_STATUS_NO_SESSION;
}

void ga_call_classify(struct ga_call *a) {
    struct ga_wire_alloc_request *bytes = a->body;
    struct ga_wire_context_request *object = a->body; // a stream request has this layout, too
    bool takes = false;
    if (a->type == GA_TYPE_ALLOC) {
        a->flags = &bytes->flags;
        takes = true;
    } else if (a->type == GA_TYPE_STREAM || a->type == GA_TYPE_CONTEXT) {
        a->flags = &object->flags;
        takes = object->count > 0;
    }
    a->waits = takes && !(*a->flags & (GA_FLAG_NO_WAIT | GA_FLAG_NOTICED));
}

void ga_call_count_failure(struct ga_call *a, int error) {
    uint64_t now = ga_os_now_ms();
    a->no_room_since = a->no_room_since ? a->no_room_since : now;
    if (error != -EBUSY && (error != -EAGAIN || now - a->no_room_since > ROOM_MS))
        a->quick_failures++;
    else
        ga_os_sleep_us(20000);
}

void ga_call_address(struct ga_root *root, struct ga_call *a) {
    struct ga_view *view = atomic_load(&root->view);
    a->reply->tag = view->tag;
    if (a->device < 0)
        return;
    uint32_t slot = (uint32_t)atomic_load(&view->slot[a->device]) - 1;
    ga_os_copy(a->body, &slot, sizeof slot);
}

// Reports whether it must be looked up whether an allocator with a cache is loaded, before the
// request may wait: the daemon decides by that whether to refuse it first.
static bool needs_look(struct ga_root *root, const struct ga_call *a) {
    return a->type == GA_TYPE_ALLOC && a->waits && !a->looked &&
           root->env.refuse_first == GA_FIRST_BY_RULE &&
           (atomic_load(&root->able) & GA_ABLE_FIRST) != 0;
}

bool ga_call_look(struct ga_root *root, struct ga_call *a) {
    if (!needs_look(root, a))
        return false;
    a->looked = true;
    a->caches = ga_interface_keeps_freed();
    a->reply->request = 0;
    a->asked_in = 0;
    return true;
}

// Returns the flags by which the daemon decides whether to refuse a request that would wait.
static uint32_t refusal_flags(struct ga_root *root, const struct ga_call *a) {
    uint32_t flags = 0;
    if (a->type != GA_TYPE_ALLOC || !(atomic_load(&root->able) & GA_ABLE_FIRST))
        return 0;
    if (!(ga_self.refused & 1u << a->device))
        flags |= GA_FLAG_FRESH;
    if (root->env.refuse_first != GA_FIRST_BY_RULE)
        flags |= GA_FLAG_CHOSEN;
    bool caches = a->looked ? a->caches : root->env.refuse_first == GA_FIRST_REFUSED;
    if (a->looked || root->env.refuse_first != GA_FIRST_BY_RULE)
        flags |= caches ? GA_FLAG_CACHES : GA_FLAG_NO_CACHES;
    return flags;
}

uint32_t ga_call_flags(struct ga_root *root, const struct ga_call *a) {
    const uint32_t refusal = GA_FLAG_FRESH | GA_FLAG_CACHES | GA_FLAG_NO_CACHES | GA_FLAG_CHOSEN;
    uint32_t flags = *a->flags & ~(GA_FLAG_RETRY | refusal);
    bool able = atomic_load(&root->able) & GA_ABLE_ASIDE;
    if (a->waits)
        flags &= ~(GA_FLAG_ASIDE | GA_FLAG_AGAIN | GA_FLAG_NO_WAIT);
    if (a->aside)
        flags |= able ? GA_FLAG_ASIDE : GA_FLAG_NO_WAIT;
    if (needs_look(root, a)) // the daemon says first whether the request would wait
        flags |= GA_FLAG_ASIDE;
    if (a->first_ms != 0 && able)
        flags |= GA_FLAG_AGAIN;
    return flags | refusal_flags(root, a) | (a->asked_in == a->reply->tag ? GA_FLAG_RETRY : 0);
}

bool ga_call_is_reported(struct ga_root *root, const struct ga_connection *connection,
                         const struct ga_call *a) {
    return a->releases && atomic_load(&connection->epoch) != a->released_in &&
           (atomic_load(&root->able) & GA_ABLE_OBJECTS);
}

// Reports whether the request was in the queue, and was given up because its time was over.
static bool is_expired(const struct ga_call *a) {
    return a->reply->header.status == GA_STATUS_CANCELLED && a->until_ms != 0 &&
           ga_os_now_ms() >= a->until_ms;
}

bool ga_call_is_crowded(const struct ga_call *a) {
    uint32_t status = a->reply->header.status;
    return status == GA_STATUS_CROWDED || (status == GA_STATUS_BUSY && a->aside) || is_expired(a);
}

uint64_t ga_call_read_crowded(const struct ga_call *a, const uint8_t **text) {
    const struct ga_reply *reply = a->reply;
    switch (a->type) {
    case GA_TYPE_ALLOC:
        *text = reply->body.alloc.text;
        return reply->body.alloc.limit;
    case GA_TYPE_STREAM:
        *text = reply->body.stream.text;
        return reply->body.stream.max == UINT32_MAX ? UINT64_MAX : reply->body.stream.max;
    default:
        *text = reply->body.context.text;
        return reply->body.context.remaining;
    }
}
