# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2016,SC2094 # $scene and the functions are scene_test.go's
#
# A user writes scripts with gpuarb: they use its exit statuses, its JSON, sizes in all
# spellings, jobs that start now or not at all, and time limits.
daemon "$scene/log" gpuarbd --mount none
# status STATUS COMMAND...: the command must end with this status; its output is in out and err.
status() {
    local status=0
    "${@:2}" >"$scene/out" 2>"$scene/err" || status=$?
    [ "$status" = "$1" ] || { echo "${*:2}: exit status $status, not $1"; cat "$scene/out" "$scene/err"; exit 1; }
}
# is TEXT COMMAND...: the command must print exactly this text.
is() {
    local got
    got=$("${@:2}")
    [ "$got" = "$1" ] || { printf '%s: "%s", not "%s"\n' "${*:2}" "$got" "$1"; exit 1; }
}
# json EXPRESSION COMMAND...: evaluates a Python expression; j is the command's JSON.
json() { "${@:2}" --json | python3 -c "import json, sys; j = json.load(sys.stdin); print($1)"; }
# none COMMAND...: waits until a table is empty. An ended job leaves it a moment later, when the
# daemon has checked that no process of the job remains.
none() { until [ "$(json 'len(j)' "$@")" = 0 ]; do sleep 0.05; done; }

# The exit status is the program's, or gpuarb's own if the program did not start.
status 0 gpuarb run -- true
status 7 gpuarb run -- sh -c 'exit 7'
status 143 gpuarb run -- sh -c 'kill $$'
status 125 gpuarb run --memory 64X -- true
status 126 gpuarb run -- /tmp
status 127 gpuarb run -- no-such-program
status 69 gpuarb --socket "$scene/nobody" ps
status 2 gpuarb ps x
# stdin, stdout and stderr belong to the program; gpuarb writes its own lines to stderr.
is 'a b' gpuarb run -- sh -c 'read -r line; echo "$line"; echo noise >&2' <<<'a b' 2>"$scene/err"
is noise cat "$scene/err"

# While nothing runs, each table is empty, and each list in JSON is [].
for table in ps jobs queue; do
    none gpuarb $table
    is '[]' gpuarb $table --json
done
is 8589934592 json 'j[0]["total_bytes"]' gpuarb devices

# One size, five spellings.
for size in 2G 2GiB 2048M 2147483648 25%; do
    is 'err 2' gpuarb run --memory "$size" -- sh -c 'cudaprog-dlsym "alloc a 2147483649" | sed -n "s/^alloc a //p"' 2>"$scene/err"
    is ok gpuarb run --memory "$size" -- sh -c 'cudaprog-dlsym "alloc a 2147483648" | sed -n "s/^alloc a //p"'
done

# Now or not at all: while another job holds the device exclusively, the program is not started.
# The loop succeeds as soon as that job has ended.
mkfifo "$scene/held"
gpuarb run --exclusive --min 6G -- sh -c 'echo ready; cat' <"$scene/held" >"$scene/ready" &
holder=$!
exec 9>"$scene/held"
until grep -qs ready "$scene/ready"; do sleep 0.02; done
is 1 json 'len(j[0]["holders"])' gpuarb devices
status 75 gpuarb run --no-wait -- touch "$scene/started"
expect "no slot on GPU 0: held alone (--exclusive) by root's job" "$scene/err"
status 75 gpuarb claim --try
[ ! -s "$scene/out" ]
# A time limit around gpuarb includes the wait; the program was not started.
status 124 timeout 1 gpuarb run --min 6G --wait -- touch "$scene/started"
[ ! -e "$scene/started" ]
# gpuarb's own limit of the wait, with a reason in the message.
status 124 gpuarb run --min 6G --wait=200ms -- touch "$scene/started"
expect 'gpuarb: ' "$scene/err"
[ ! -e "$scene/started" ]
# A request that stopped waiting has left the queue.
none gpuarb queue
# A time limit of the program alone begins after the wait.
gpuarb run --min 6G --wait -- timeout 600 touch "$scene/started" 2>"$scene/waits" 9>&- &
waiter=$!
until grep -qs waits "$scene/waits"; do sleep 0.02; done
[ ! -e "$scene/started" ]
exec 9>&-
wait $holder
wait $waiter
[ -e "$scene/started" ]
until gpuarb run --no-wait -- true 2>"$scene/err"; do sleep 0.05; done
# The daemon's log has the requests that waited, were served, gave up, waited too long and were refused.
for said in 'level=INFO msg="root.s cudaprog-dlsym\[.*\] is refused: .*event=denied' 'level=INFO msg="root.s touch\[.*\] is refused: no slot on GPU 0: .*event=denied' \
    'level=INFO msg="job [0-9]* (touch) waits for its memory.min of 6 GiB on GPU 0, .*event=queued' 'level=INFO msg="job [0-9]* (touch) .* its request was cancelled .*event=cancelled' \
    'level=INFO msg="job [0-9]* (touch) .* it waited as long as it may; .*event=timeout' 'level=INFO msg="job [0-9]* (timeout) has its memory.min of 6 GiB .*event=served'; do
    grep -q "$said" "$scene/log" || { echo "no line of $said"; cat "$scene/log"; exit 1; }
done
status 124 gpuarb run -- timeout 0.1 sleep 600

# Output into a pipe without a reader, and output that cannot be written.
status 1 sh -c 'gpuarb devices >/dev/full'
expect 'gpuarb: the output cannot be written: no space left on device' "$scene/err"
mkfifo "$scene/pipe"
exec 3<>"$scene/pipe" 4>"$scene/pipe" 3<&-
status 141 sh -c 'gpuarb devices >&4; exit $?'
nowhere gpuarb "$scene/err"
exec 4>&-
