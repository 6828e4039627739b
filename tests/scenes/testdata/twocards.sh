# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2016,SC2154 # words in single quotes are for another shell; $scene and the functions are scene_test.go's
#
# A machine with two cards. A model server keeps memory on the second card alone, because its unit shows it that card. The
# interns may use the first card alone. Everybody else starts programs on the first card, and is told of the second.
cat >"$scene/config" <<'.'
schema_version = 1
[[rule]]
name = "server"
match.user = "61001"
memory.min = "6G"
[[rule]]
name = "interns"
match.user = "61002"
devices = [0]
.
chmod 644 "$scene/config"
daemon "$scene/log" gpuarbd --mount none --config "$scene/config"
readonly server=61001 intern=61002 anne=61003 bert=61004
uuids=()
while read -r uuid; do uuids+=("$uuid"); done < <(gpuarb devices --json | python3 -c "import json, sys; [print(d['uuid']) for d in json.load(sys.stdin)]")

# The server starts with the card that its unit shows, by the library alone. Its 6 GiB are kept there, and nothing on the first card.
mkfifo "$scene/server" "$scene/anne"
as $server env LD_PRELOAD=libgpuarb.so CUDA_VISIBLE_DEVICES=1 cudaprog-dlsym <"$scene/server" >"$scene/server.out" &
exec 7>"$scene/server"
until grep -qs ready "$scene/server.out"; do sleep 0.02; done
gpuarb devices --json | python3 -c "
import json, sys
first, second = [d['reserved_bytes'] for d in json.load(sys.stdin)]
assert first == 0 and second == 6 << 30, (first, second)"
as $anne gpuarb run --device 0 -- cudaprog-dlsym 'alloc a 7G' >"$scene/out" 7>&-
expect 'alloc a ok' "$scene/out"

# An intern's program on the second card is refused, and says what to set. With that it runs.
status=0
as $intern env LD_PRELOAD=libgpuarb.so cudaprog-dlsym --device 1 'alloc a 1G' >"$scene/out" 2>"$scene/err" 7>&- || status=$?
[ $status = 1 ]
expect 'GPU 1 is not among the devices of rule interns' "$scene/err"
set_to=$(grep -o 'CUDA_VISIBLE_DEVICES=[^,; ]*' "$scene/err")
[ "$set_to" = "CUDA_VISIBLE_DEVICES=${uuids[0]}" ]
as $intern env LD_PRELOAD=libgpuarb.so "$set_to" cudaprog-dlsym 'alloc a 1G' >"$scene/out" 2>"$scene/err" 7>&-
expect 'alloc a ok' "$scene/out"
# gpuarb run sets it by itself, whatever the intern's shell says; asking for the other card is refused.
as $intern env CUDA_VISIBLE_DEVICES=1 gpuarb run -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"' >"$scene/out" 7>&-
expect "${uuids[0]}" "$scene/out"
status=0
as $intern gpuarb run --device 1 -- true 2>"$scene/err" 7>&- || status=$?
[ $status = 125 ]
expect 'which are: GPU 0' "$scene/err"

# The server is gone. Anne fills the first card, and Bert's program, which lands there too, is told of the second one.
exec 7>&-
until [ "$(gpuarb ps --json)" = '[]' ]; do sleep 0.02; done
as $anne gpuarb run -- cudaprog-dlsym <"$scene/anne" >"$scene/anne.out" &
exec 8>"$scene/anne"
echo 'alloc a 6G' >&8
until grep -qs 'alloc a ok' "$scene/anne.out"; do sleep 0.02; done
as $bert gpuarb run -- cudaprog-dlsym 'alloc b 4G' >"$scene/out" 2>"$scene/err" 8>&-
expect 'alloc b err 2' "$scene/out"
expect 'GPU 1 has' "$scene/err"
command=$(grep -o '`gpuarb run --device [0-9]*`' "$scene/err" | tr -d '`')
[ "$command" = 'gpuarb run --device 1' ]
# shellcheck disable=SC2086 # the message has the words of a command
as $bert $command -- cudaprog-dlsym 'alloc b 4G' >"$scene/out" 8>&-
expect 'alloc b ok' "$scene/out"

# A program that waits is told the same, and so is who asks why.
as $bert gpuarb run --wait -- cudaprog-dlsym 'alloc b 4G' >"$scene/out" 2>"$scene/waits" 8>&- &
waiter=$!
until grep -qs 'GPU 1 has .* free: `gpuarb run --device 1`, or `--device emptiest`' "$scene/waits"; do sleep 0.02; done
as $bert gpuarb why >"$scene/why" 8>&-
expect '→ GPU 1 has' "$scene/why"

# Six runs that start together share the emptier card and leave the full one alone.
for i in 1 2 3 4 5 6; do
	as $bert gpuarb run --device emptiest --memory 1G -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"; exec cudaprog-dlsym "alloc c 1G"' >"$scene/run$i" 8>&- &
	runs[i]=$!
done
for i in 1 2 3 4 5 6; do
	wait "${runs[i]}"
	expect 'alloc c ok' "$scene/run$i"
	expect "${uuids[1]}" "$scene/run$i"
done
exec 8>&-
wait $waiter
expect 'alloc b ok' "$scene/out"
