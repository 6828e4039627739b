// SPDX-License-Identifier: Apache-2.0
// Sends a request and receives its replies, until the last one.
#include "core/wait.h"

#include <errno.h>

#include "core/log.h"

#define TICK_MS 100 // interval at which a waiting thread gives back unneeded memory

#define LINE_EVERY_MS 60000 // time between two lines of a wait if stderr is not a terminal

// Latest notice of a waiting thread, and when a line was last printed for it.
struct told {
    uint8_t text[GA_TEXT_SIZE]; // latest notice of the daemon; empty: none yet
    uint64_t at_ms;             // when a line was last printed (ga_os_now_ms); 0: none was
};

// Prints the latest notice. With a bare preload only the first wait of the process is printed.
static void print_wait(struct ga_root *root, struct told *told) {
    if (root->env.in_job || atomic_exchange(&root->wait_reported, 1) == 0)
        ga_log_user("%t", told->text);
    told->at_ms = ga_os_now_ms();
}

// Reports to the user what is waited for. On a terminal each change is printed, elsewhere the first
// notice and the last.
static void report_wait(struct ga_root *root, const struct ga_reply *reply, struct told *told) {
    const uint8_t *text = reply->body.waiting.text;
    size_t i = 0;
    if (!ga_message_fits(reply, sizeof reply->body.waiting))
        return;
    while (i < GA_TEXT_SIZE && text[i] == told->text[i] && text[i])
        i++;
    if (i == GA_TEXT_SIZE || text[i] == told->text[i])
        return;
    ga_os_copy(told->text, text, GA_TEXT_SIZE);
    bool last = reply->body.waiting.position == 0; // it says what was got
    if (told->at_ms == 0 || last || ga_os_is_terminal(2))
        print_wait(root, told);
    ga_log("%t", told->text);
}

// Prints the latest notice again if no line was printed for a minute, for logs that would be silent
// otherwise.
static void repeat_wait(struct ga_root *root, struct told *told) {
    if (root->env.in_job && ga_os_now_ms() - told->at_ms >= LINE_EVERY_MS && !ga_os_is_terminal(2))
        print_wait(root, told);
}

static int receive(struct ga_connection *connection, const struct ga_request *request,
                   struct ga_reply *reply, int timeout_ms) {
    return ga_message_receive(atomic_load(&connection->fd_plus_1) - 1, &connection->id,
                              request->type, request->number, reply, timeout_ms);
}

static GA_NOINLINE int wait_on(struct ga_root *root, struct ga_connection *connection,
                               const struct ga_request *request, struct ga_reply *reply, int error,
                               ga_wait_tick *tick) {
    struct told told = {0};
    bool given_up = false;
    for (uint32_t ticks = 1;; ticks++) {
        if (error == 0 && reply->header.status != GA_STATUS_WAITING)
            return 0;
        if (error == 0) {
            if (reply->fd >= 0)
                ga_os_close(reply->fd);
            reply->waited = true;
            report_wait(root, reply, &told);
        } else if (error != -ETIMEDOUT || !reply->waited) {
            return error;
        } else {
            if (tick)
                tick(root, ticks);
            repeat_wait(root, &told);
        }
        if (request->until_ms != 0 && !given_up && ga_os_now_ms() >= request->until_ms) {
            given_up = true;
            ga_message_send(atomic_load(&connection->fd_plus_1) - 1, GA_TYPE_GIVE_UP,
                            request->number, NULL, 0, -1, GA_REPLY_MS);
        }
        error = receive(connection, request, reply, TICK_MS);
    }
}

// Reports whether a reply may be there although sending failed: the daemon may turn a new
// connection away before it reads anything.
static bool may_be_answered(struct ga_connection *connection, int error) {
    return (error == -EPIPE || error == -ECONNRESET) && atomic_load(&connection->epoch) == 0;
}

int ga_wait_exchange(struct ga_root *root, struct ga_connection *connection,
                     const struct ga_request *request, struct ga_reply *reply, ga_wait_tick *tick) {
    int fd = atomic_load(&connection->fd_plus_1) - 1;
    reply->waited = false;
    reply->fd = -1;
    if (GA_UNLIKELY(fd < 0))
        return -EPIPE;
    int error = ga_message_send(fd, request->type, request->number, request->body, request->size,
                                request->fd, GA_REPLY_MS);
    if (GA_UNLIKELY(error != 0) && !may_be_answered(connection, error))
        return error;
    error = receive(connection, request, reply, GA_REPLY_MS);
    if (GA_LIKELY(error == 0 && reply->header.status != GA_STATUS_WAITING))
        return 0;
    return wait_on(root, connection, request, reply, error, tick);
}
