// SPDX-License-Identifier: Apache-2.0
// Formats the report, and sends it to the daemon.
#include "core/second_copy.h"

#include "core/log.h"
#include "core/session.h"

// Copies a path. Copies only the end of a path that is too long, because the end says more.
static void put_path(uint8_t to[GA_PATH_SIZE], const char *path) {
    size_t length = path ? ga_os_length(path) : 0;
    size_t skipped = length < GA_PATH_SIZE ? 0 : length - (GA_PATH_SIZE - 1);
    if (length > 0)
        ga_os_copy(to, path + skipped, length - skipped);
}

void ga_second_copy_report(const char *held, const char *beside) {
    struct ga_wire_copies_request request = {.held = {0}};
    struct ga_reply reply = {.request = 0};
    struct ga_root *root = ga_root_get();
    ga_log_user(
        "this program uses two copies of a driver's library: %s is limited, %s is not, and memory "
        "that the program takes with it counts against no budget; let the program load one copy",
        held ? held : "one", beside ? beside : "another one");
    put_path(request.held, held);
    put_path(request.beside, beside);
    if (root && ga_session_ensure(root) == GA_WAY_ASK && atomic_load(&root->able) & GA_ABLE_COPIES)
        ga_session_ask(root, GA_TYPE_COPIES, -1, &request, sizeof request, &reply);
}
