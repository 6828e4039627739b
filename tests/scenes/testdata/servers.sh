# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2164,SC2094 # $scene and the functions are scene_test.go's, as is set -e; no file is read and written at once
#
# Three model servers share a card of 24 GiB. Two of them have loaded 10 GiB each and serve. The third stops half-way through
# its weights, because there is no room for them. The requests of the first two go on meanwhile. A program that comes later
# waits, and is told for which server the free bytes are kept. When the first server ends, the third loads the rest and serves.
daemon "$scene/log" gpuarbd --mount none
cd "$scene"
cat >server.py <<'.'
import gc
import sys

import numpy
from numba import cuda

weights = []
for layer in range(int(sys.argv[1])):
    weights.append(cuda.device_array(1 << 30, dtype=numpy.uint8))
    print("layer", layer + 1, flush=True)
print("serves", flush=True)
for request in sys.stdin:
    scratch = cuda.device_array(64 << 20, dtype=numpy.uint8)
    del scratch
    gc.collect()
    cuda.current_context().deallocations.clear()
    print("answer", request.strip(), flush=True)
.

# server NAME LAYERS FD: starts a server that gets its requests by a descriptor.
server() {
    mkfifo "$1"
    gpuarb run --name "$1" --wait -- /usr/bin/python3 server.py "$2" <"$1" >"$1.out" 2>"$1.err" 5>&- 6>&- 7>&- &
    servers+=($!)
    eval "exec $3>$1"
}
# says NAME LINE: waits until a server has printed a line.
says() {
    local tries=0
    until grep -qsx -- "$2" "$1.out"; do
        if [ $((tries += 1)) -gt 1500 ]; then
            echo "$1 does not say \"$2\":"
            cat "$1.out" "$1.err"
            gpuarb queue --json
            exit 1
        fi
        sleep 0.02
    done
}
# serves NAME FD NUMBER...: asks a server, which has to answer each request.
serves() {
    for request in "${@:3}"; do
        echo "$request" >&"$2"
        says "$1" "answer $request"
    done
}
servers=()
server model-a 10 5
server model-b 10 6
says model-a serves
says model-b serves
server model-c 10 7
says model-c 'layer 3'
until grep -q '"job_name":"model-c"' <(gpuarb queue --json); do sleep 0.02; done

# The requests of the servers that run go on.
serves model-a 5 1 2 3 4 5
serves model-b 6 1 2 3 4 5
nowhere waits model-a.err
nowhere waits model-b.err
expect 'waits for 1 GiB on GPU 0, position 1: ' model-c.err
nowhere "holds: root's model-c" model-c.err

# A program that has nothing yet comes after the server that waits. It is told so, and gpuarb why tells it, too.
: >late.err
gpuarb run --name late --wait -- cudaprog-dlsym 'alloc a 64M' >late.out 2>late.err 5>&- 6>&- 7>&- &
late=$!
until grep -q 'free, but kept for model-c (python3[^)]*), which has waited .* for 1 GiB' late.err; do sleep 0.02; done
gpuarb why >why 2>&1
expect 'free, but kept for model-c' why
expect 'it goes on when those before it have been served' why
serves model-a 5 6
gpuarb queue >queue
expect BEHIND queue

# Its second half is loaded as soon as the first server has ended.
exec 5>&-
says model-c serves
serves model-c 7 1 2
serves model-b 6 6
wait $late
expect 'alloc a ok' late.out
exec 6>&- 7>&-
wait "${servers[@]}"
