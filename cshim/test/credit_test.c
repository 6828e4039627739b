// SPDX-License-Identifier: Apache-2.0
// The words of a lease: what each side may change, and what it finds.
#include "core/streams.h"

#include "check.h"

#define EPOCH(n) ((uint64_t)(n) << GA_EPOCH_SHIFT)

#define MAY_HAVE(n) (GA_STREAMS_OPEN | (uint64_t)(n) << GA_STREAMS_MAX_SHIFT)

static void check_streams(void) {
    struct ga_wire_lease_slot s = {.streams = 0};
    // The daemon has the count, and nothing is changed.
    CHECK(!ga_streams_acquire(&s) && !ga_streams_release(&s, 1) && s.streams == 0);
    s.streams = MAY_HAVE(9) - GA_STREAMS_OPEN + 4;
    CHECK(!ga_streams_acquire(&s) && !ga_streams_release(&s, 1));
    // As many as there may be, and no more.
    s.streams = MAY_HAVE(2);
    CHECK(ga_streams_acquire(&s) && ga_streams_acquire(&s));
    CHECK(!ga_streams_acquire(&s) && s.streams == (MAY_HAVE(2) | 2));
    // Never below none.
    CHECK(!ga_streams_release(&s, 3) && s.streams == (MAY_HAVE(2) | 2));
    CHECK(ga_streams_release(&s, 2) && s.streams == MAY_HAVE(2));
    // Nor into the bits above.
    s.streams = MAY_HAVE(GA_STREAMS_MASK) | (GA_STREAMS_MASK - 1);
    CHECK(ga_streams_acquire(&s) && !ga_streams_acquire(&s));
    CHECK(s.streams == (MAY_HAVE(GA_STREAMS_MASK) | GA_STREAMS_MASK));
}

int main(void) {
    check_streams();
    struct ga_wire_lease_slot s = {.credit = EPOCH(3) | 1000, .low = EPOCH(3) | 1000};
    // Exactly what there is, and no byte more.
    CHECK(!ga_credit_acquire(&s, 1001) && s.credit == (EPOCH(3) | 1000));
    CHECK(ga_credit_acquire(&s, 1000) && s.credit == EPOCH(3));
    CHECK(s.low == EPOCH(3));
    CHECK(!ga_credit_acquire(&s, 1));
    CHECK(ga_credit_release(&s, 600) == EPOCH(3) && s.credit == (EPOCH(3) | 600));
    // Low stays at the least, and is not raised.
    CHECK(s.low == EPOCH(3));
    s.low = EPOCH(3) | 600;
    CHECK(ga_credit_acquire(&s, 100) && s.low == (EPOCH(3) | 500));
    CHECK(!(ga_credit_release(&s, 100) & GA_FLAG_NOTIFY) && s.low == (EPOCH(3) | 500));
    // Of another epoch it is not touched.
    s.low = EPOCH(4) | 600;
    CHECK(ga_credit_acquire(&s, 200) && s.low == (EPOCH(4) | 600));
    // Closed: nothing is taken, giving still works, flags and epoch stay.
    s.credit |= GA_FLAG_CLOSED | GA_FLAG_NOTIFY;
    CHECK(!ga_credit_acquire(&s, 1));
    CHECK(ga_credit_release(&s, 7) & GA_FLAG_NOTIFY);
    CHECK(s.credit == (GA_FLAG_CLOSED | GA_FLAG_NOTIFY | EPOCH(3) | 407));
    // A wrong guess of the word costs nothing but time.
    s.credit = EPOCH(16383) | 50;
    uint64_t seen = EPOCH(2) | 70000;
    CHECK(ga_credit_acquire_seen(&s, 50, &seen) && s.credit == EPOCH(16383) && seen == s.credit);
    seen = EPOCH(16383) | 50;
    CHECK(!ga_credit_acquire_seen(&s, 50, &seen) && s.credit == EPOCH(16383));
    seen = GA_FLAG_CLOSED;
    s.credit = 9;
    CHECK(ga_credit_acquire_seen(&s, 9, &seen) && s.credit == 0);
    // It saturates, and never reaches the epoch.
    s.credit = GA_FLAG_NOTIFY | EPOCH(1) | (GA_CREDIT_LIMIT - 5);
    ga_credit_release(&s, 6);
    CHECK(s.credit == (GA_FLAG_NOTIFY | EPOCH(1) | GA_CREDIT_LIMIT));
    s.credit = EPOCH(1);
    ga_credit_release(&s, ~0ull);
    CHECK(s.credit == (EPOCH(1) | GA_CREDIT_LIMIT));
    return 0;
}
