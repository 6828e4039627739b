# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2016,SC2094 # $scene and the functions are scene_test.go's
#
# Somebody writes scripts around gpuarb: by its exit status, its JSON, sizes in all their
# spellings, jobs that are only started where they can run now, and time limits.
daemon "$scene/log" gpuarbd --mount none
# status STATUS COMMAND...: a command that has to end so; what it prints is in out and err.
status() {
    local status=0
    "${@:2}" >"$scene/out" 2>"$scene/err" || status=$?
    [ "$status" = "$1" ] || { echo "${*:2}: exit status $status, not $1"; cat "$scene/out" "$scene/err"; exit 1; }
}
# is TEXT COMMAND...: a command has to print just this.
is() {
    local got
    got=$("${@:2}")
    [ "$got" = "$1" ] || { printf '%s: "%s", not "%s"\n' "${*:2}" "$got" "$1"; exit 1; }
}
# json EXPRESSION COMMAND...: what Python makes of the answer, which is called j.
json() { "${@:2}" --json | python3 -c "import json, sys; j = json.load(sys.stdin); print($1)"; }
# none COMMAND...: waits until a table is empty. What has ended leaves it moments later, when the
# daemon has looked whether it left something behind.
none() { until [ "$(json 'len(j)' "$@")" = 0 ]; do sleep 0.05; done; }

# The program's status, and gpuarb's own where there is none.
status 0 gpuarb run -- true
status 7 gpuarb run -- sh -c 'exit 7'
status 143 gpuarb run -- sh -c 'kill $$'
status 125 gpuarb run --memory 64X -- true
status 126 gpuarb run -- /tmp
status 127 gpuarb run -- no-such-program
status 69 gpuarb --socket "$scene/nobody" ps
status 2 gpuarb ps x
# stdin, stdout and stderr are the program's; gpuarb keeps its lines to stderr.
is 'a b' gpuarb run -- sh -c 'read -r line; echo "$line"; echo noise >&2' <<<'a b' 2>"$scene/err"
is noise cat "$scene/err"

# Nothing runs: each table is empty and each list is [], as JSON too.
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

# Now or not at all: while somebody holds the device for himself, nothing is started, and the loop
# goes on as soon as he has ended.
mkfifo "$scene/held"
gpuarb run --exclusive --min 6G -- sh -c 'echo ready; cat' <"$scene/held" >"$scene/ready" &
holder=$!
exec 9>"$scene/held"
until grep -qs ready "$scene/ready"; do sleep 0.02; done
is 1 json 'len(j[0]["holders"])' gpuarb devices
status 75 gpuarb run --no-wait -- touch "$scene/started"
expect "no slot on GPU 0: alone there: root's job" "$scene/err"
status 75 gpuarb claim --try
[ ! -s "$scene/out" ]
# A bound around the whole of it, the wait included; the program was not started.
status 124 timeout 1 gpuarb run --min 6G --wait -- touch "$scene/started"
[ ! -e "$scene/started" ]
# The bound of the wait alone: gpuarb's own, with a reason.
status 124 gpuarb run --min 6G --wait=200ms -- touch "$scene/started"
expect 'gpuarb: ' "$scene/err"
[ ! -e "$scene/started" ]
# Whoever stopped waiting is out of the queue.
none gpuarb queue
# A bound for the program alone: it begins after the wait, however long that was.
gpuarb run --min 6G --wait -- timeout 600 touch "$scene/started" 2>"$scene/waits" 9>&- &
waiter=$!
until grep -qs waits "$scene/waits"; do sleep 0.02; done
[ ! -e "$scene/started" ]
exec 9>&-
wait $holder
wait $waiter
[ -e "$scene/started" ]
until gpuarb run --no-wait -- true 2>"$scene/err"; do sleep 0.05; done
# The daemon's log has told who waited, was served, gave up, waited too long and was refused, as any daemon's does.
for said in 'level=INFO msg="root.s cudaprog-dlsym\[.*\] is refused: .*event=denied' 'level=INFO msg="root.s touch\[.*\] is refused: no slot on GPU 0: .*event=denied' \
    'level=INFO msg="job [0-9]* (touch) waits for its memory.min of 6 GiB on GPU 0, .*event=queued' 'level=INFO msg="job [0-9]* (touch) .* its request was cancelled" event=cancelled' \
    'level=INFO msg="job [0-9]* (touch) .* it waited as long as it may; .*event=timeout' 'level=INFO msg="job [0-9]* (timeout) has its memory.min of 6 GiB .*event=served'; do
    grep -q "$said" "$scene/log" || { echo "no line of $said"; cat "$scene/log"; exit 1; }
done
status 124 gpuarb run -- timeout 0.1 sleep 600

# Output that nobody reads, or that cannot be written.
status 1 sh -c 'gpuarb devices >/dev/full'
expect 'gpuarb: the output cannot be written: no space left on device' "$scene/err"
mkfifo "$scene/pipe"
exec 3<>"$scene/pipe" 4>"$scene/pipe" 3<&-
status 141 sh -c 'gpuarb devices >&4; exit $?'
nowhere gpuarb "$scene/err"
exec 4>&-
