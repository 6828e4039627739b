#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# limit.sh SECONDS COMMAND...: runs a command with a time limit. If the command takes longer, the
# script shows what each of its threads waits for, and kills it with all its children. The exit
# status is then 124, otherwise that of the command.
set -uo pipefail

limit=$1
shift

show() { # prints the kernel's facts about the processes of a group
    local pid task
    for pid in $(ps -e -o pid=,pgid= | awk -v group="$1" '$2 == group { print $1 }'); do
        echo "process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
        for task in /proc/"$pid"/task/*; do
            echo "  thread ${task##*/} ($(cat "$task/comm")) in $(cat "$task/wchan"), system call $(cat "$task/syscall")"
            sed 's/^/    /' "$task/stack"
        done
    done 3>&2 2>/dev/null >&3
}

set -m # put the command into its own process group
"$@" &
command=$!
set +m
trap 'kill -KILL -- -$command' INT TERM HUP
(
    # Close the output, so that readers of this script's output do not wait for this process.
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
