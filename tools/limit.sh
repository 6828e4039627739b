#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# limit.sh SECONDS COMMAND...: run a command with the time that it may take. One that
# takes longer is killed with all that it started, after what each of its threads waits
# for has been shown; the exit status is 124 then, else the command's.
set -uo pipefail

limit=$1
shift

show() { # what the kernel says of the processes of a group
    local pid task
    for pid in $(ps -e -o pid=,pgid= | awk -v group="$1" '$2 == group { print $1 }'); do
        echo "process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
        for task in /proc/"$pid"/task/*; do
            echo "  thread ${task##*/} ($(cat "$task/comm")) in $(cat "$task/wchan"), system call $(cat "$task/syscall")"
            sed 's/^/    /' "$task/stack"
        done
    done 3>&2 2>/dev/null >&3
}

set -m # a group of its own
"$@" &
command=$!
set +m
trap 'kill -KILL -- -$command' INT TERM HUP
(
    # Its output is nobody's: whoever reads ours is not to wait for it.
    exec >/dev/null </dev/null
    sleep "$limit" &
    trap 'kill $!; exit' TERM
    wait
    echo "$* has not ended after $limit seconds" >&2
    show $command
    kill -KILL -- -$command
    exit 124
) &
watcher=$!
wait $command
status=$?
kill $watcher 2>/dev/null
wait $watcher
[ $? -eq 124 ] && status=124
exit $status
