# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # $scene and the functions are scene_test.go's
#
# Eight tests of 2 GiB each start together on a GPU of 8 GiB. None fails, and none waits for
# memory that other tests free only at their end, such as that of a context.
daemon "$scene/log" gpuarbd --mount none --debug

for takes in 2G 2100M; do
    seq 8 | xargs -P8 -I{} gpuarb run --min 2G --wait -- \
        sh -c "cudaprog-dlsym 'alloc a $takes; sleep 100' >$scene/$takes.{}" 2>"$scene/err"
    for i in $(seq 8); do
        expect 'alloc a ok' "$scene/$takes.$i"
    done
done
cp "$scene/log" "$scene/events"
expect 'waits for its memory.min of 2 GiB' "$scene/events"
for never in 'waits for a context' event=deadlock event=denied event=timeout; do
    nowhere "$never" "$scene/events"
done

# A reservation that leaves no memory for a context is refused, with the largest possible
# reservation: by the measured size of a context, which the device has shown by now.
most() { echo $(((8 << 30) - $(gpuarb plan --copies 1 --min 1G --json | sed -n 's/.*"context_bytes": \([0-9]*\).*/\1/p'))); }
refused() {
    local status=0
    gpuarb run --min 8G --wait -- cudaprog-dlsym 'alloc a 8G' 2>"$scene/err" || status=$?
    [ $status = 125 ]
    until [ "$(gpuarb jobs --json | grep -c used_bytes)" = "$2" ]; do sleep 0.02; done # the jobs before have ended
    gpuarb plan --copies 8 --min 2G >"$scene/plan"
    expect "memory.min of 8 GiB on GPU 0 could never be used in full: $1 is the most that can be reserved" "$scene/err"
}
refused '7.7 GiB' 0
expect 'GPU 0: 8 copies need 18.3 GiB with their contexts (2.2 GiB each); free now: 8 GiB: 3 run at once, 5 would wait' "$scene/plan"
mkfifo "$scene/never"
gpuarb run -- cudaprog-dlsym hold <>"$scene/never" >"$scene/out" &
holder=$!
until [ "$(most)" = $(((8 << 30) - (300 << 20))) ]; do sleep 0.1; done
refused '7.7 GiB' 1
expect 'GPU 0: 8 copies need 18.3 GiB with their contexts (2.2 GiB each); free now: 7.7 GiB: 3 run at once, 5 would wait' "$scene/plan"
kill $holder
wait $holder || true
for least in "$(most)" max; do
    gpuarb run --min "$least" --wait -- cudaprog-dlsym "alloc a $(most)" >"$scene/out"
    expect 'alloc a ok' "$scene/out"
done
