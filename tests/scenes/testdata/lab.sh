# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # $scene and the functions are scene_test.go's
#
# A lab: three students share a quarter of the GPU, and their teacher has the rest. Memory that one
# student holds is not available to the others. They are told who holds it, and get it when free.
cat >"$scene/config" <<'.'
schema_version = 1
[[rule]]
name = "students"
match.group = "61100"
scope = "rule"
memory.max = "25%"
.
chmod 644 "$scene/config"
daemon "$scene/log" gpuarbd --mount none --config "$scene/config"
student() { setpriv --reuid="$1" --regid=61100 --clear-groups "${@:2}"; }
readonly anne=61001 bert=61002 carl=61003 teacher=61004

# Anne and Bert hold three quarters of their share. Each program ends when the last writer closes its pipe.
mkfifo "$scene/anne" "$scene/bert"
student $anne gpuarb run -- cudaprog-dlsym <"$scene/anne" >"$scene/anne.out" &
annes=$!
exec 7>"$scene/anne"
student $bert gpuarb run -- cudaprog-dlsym <"$scene/bert" >"$scene/bert.out" 7>&- &
exec 8>"$scene/bert"
echo 'alloc a 1G' >&7
echo 'alloc a 512M' >&8
until grep -qs 'alloc a ok' "$scene/anne.out"; do sleep 0.02; done
until grep -qs 'alloc a ok' "$scene/bert.out"; do sleep 0.02; done

# Carl's programs must not keep these pipes open, or Anne's and Bert's programs would not end.
carl() { student $carl "$@" 7>&- 8>&-; }

# Carl gets the last 512 MiB, and not a byte more. The refusal names the users who hold the rest.
carl gpuarb run -- cudaprog-dlsym 'alloc a 512M; alloc b 1' >"$scene/out" 2>"$scene/err"
expect 'alloc a ok' "$scene/out"
expect 'alloc b err 2' "$scene/out"
expect 'of the 2 GiB budget shared by rule students; holds: user 61001' "$scene/err"
carl gpuarb jobs >"$scene/out"
expect 61001 "$scene/out"
expect 61002 "$scene/out"
# No flag gives Carl more, and he cannot change another student's limit.
carl gpuarb run --memory 2G -- cudaprog-dlsym 'alloc a 513M' >"$scene/out" 2>"$scene/err"
expect 'alloc a err 2' "$scene/out"
pid=$(gpuarb ps --json | python3 -c "import json, sys; print(*[l['pid'] for l in json.load(sys.stdin) if l['uid'] == $anne])")
status=0
carl gpuarb limit "$pid" memory.max=1M 2>"$scene/err" || status=$?
[ $status = 1 ]
expect 'gpuarb: ' "$scene/err"

# The students cannot use the teacher's part.
as $teacher gpuarb run -- cudaprog-dlsym 'alloc a 5G' 7>&- 8>&- >"$scene/out"
expect 'alloc a ok' "$scene/out"

# Carl's program waits in the queue for memory, and gets it when Bert's program ends.
carl gpuarb run --wait -- cudaprog-dlsym 'alloc a 1G' >"$scene/out" 2>"$scene/waits" 7>&- 8>&- &
waiter=$!
until grep -qs 'waits for' "$scene/waits"; do sleep 0.02; done
carl gpuarb queue >"$scene/queue"
expect 61003 "$scene/queue"
nowhere 'alloc a ok' "$scene/out"
exec 8>&-
wait $waiter
expect 'alloc a ok' "$scene/out"
exec 7>&-
wait $annes
