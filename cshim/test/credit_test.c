// SPDX-License-Identifier: Apache-2.0
// Unit test of the atomic words of a lease (core/credit.h, core/streams.h): what each side may
// change, and reads.
#include "core/streams.h"

#include "check.h"

#define EPOCH(n) ((uint64_t)(n) << GA_EPOCH_SHIFT)

#define MAY_HAVE(n) (GA_STREAMS_OPEN | (uint64_t)(n) << GA_STREAMS_MAX_SHIFT)

static void check_streams(void) {
    struct ga_wire_lease_slot s = {.streams = 0};
    // The daemon keeps the count, so nothing changes.
    CHECK(!ga_streams_acquire(&s) && !ga_streams_release(&s, 1) && s.streams == 0);
    s.streams = MAY_HAVE(9) - GA_STREAMS_OPEN + 4;
    CHECK(!ga_streams_acquire(&s) && !ga_streams_release(&s, 1));
    // Up to the maximum, and no more.
    s.streams = MAY_HAVE(2);
    CHECK(ga_streams_acquire(&s) && ga_streams_acquire(&s));
    CHECK(!ga_streams_acquire(&s) && s.streams == (MAY_HAVE(2) | 2));
    // The count cannot become negative.
    CHECK(!ga_streams_release(&s, 3) && s.streams == (MAY_HAVE(2) | 2));
    CHECK(ga_streams_release(&s, 2) && s.streams == MAY_HAVE(2));
    // The bits above the count cannot change.
    s.streams = MAY_HAVE(GA_STREAMS_MASK) | (GA_STREAMS_MASK - 1);
    CHECK(ga_streams_acquire(&s) && !ga_streams_acquire(&s));
    CHECK(s.streams == (MAY_HAVE(GA_STREAMS_MASK) | GA_STREAMS_MASK));
}

int main(void) {
    check_streams();
    struct ga_wire_lease_slot s = {.credit = EPOCH(3) | 1000, .low = EPOCH(3) | 1000};
    // All of the credit can be acquired, and no byte more.
    CHECK(!ga_credit_acquire(&s, 1001) && s.credit == (EPOCH(3) | 1000));
    CHECK(ga_credit_acquire(&s, 1000) && s.credit == EPOCH(3));
    CHECK(s.low == EPOCH(3));
    CHECK(!ga_credit_acquire(&s, 1));
    CHECK(ga_credit_release(&s, 600) == EPOCH(3) && s.credit == (EPOCH(3) | 600));
    // The minimum stays at the lowest credit.
    CHECK(s.low == EPOCH(3));
    s.low = EPOCH(3) | 600;
    CHECK(ga_credit_acquire(&s, 100) && s.low == (EPOCH(3) | 500));
    CHECK(!(ga_credit_release(&s, 100) & GA_FLAG_NOTIFY) && s.low == (EPOCH(3) | 500));
    // A minimum of another epoch is not changed.
    s.low = EPOCH(4) | 600;
    CHECK(ga_credit_acquire(&s, 200) && s.low == (EPOCH(4) | 600));
    // Closed: nothing can be acquired, releases still work, flags and epoch stay.
    s.credit |= GA_FLAG_CLOSED | GA_FLAG_NOTIFY;
    CHECK(!ga_credit_acquire(&s, 1));
    CHECK(ga_credit_release(&s, 7) & GA_FLAG_NOTIFY);
    CHECK(s.credit == (GA_FLAG_CLOSED | GA_FLAG_NOTIFY | EPOCH(3) | 407));
    // A wrong guess of the word costs only time.
    s.credit = EPOCH(16383) | 50;
    uint64_t seen = EPOCH(2) | 70000;
    CHECK(ga_credit_acquire_seen(&s, 50, &seen) && s.credit == EPOCH(16383) && seen == s.credit);
    seen = EPOCH(16383) | 50;
    CHECK(!ga_credit_acquire_seen(&s, 50, &seen) && s.credit == EPOCH(16383));
    seen = GA_FLAG_CLOSED;
    s.credit = 9;
    CHECK(ga_credit_acquire_seen(&s, 9, &seen) && s.credit == 0);
    // The credit saturates below the epoch bits.
    s.credit = GA_FLAG_NOTIFY | EPOCH(1) | (GA_CREDIT_LIMIT - 5);
    ga_credit_release(&s, 6);
    CHECK(s.credit == (GA_FLAG_NOTIFY | EPOCH(1) | GA_CREDIT_LIMIT));
    s.credit = EPOCH(1);
    ga_credit_release(&s, ~0ull);
    CHECK(s.credit == (EPOCH(1) | GA_CREDIT_LIMIT));
    return 0;
}
