#!/usr/bin/env bash
# demo.sh: show the main job on this machine. Two unmodified ffmpeg processes share a GPU
# under gpuarb, a third one exceeds its budget, and the memory of a killed process is free
# again. The script starts a daemon with a socket and a mount of its own in a temporary
# folder. It changes nothing of the system and leaves nothing behind. It builds its programs
# first, and prints the log of the build only if that fails.
#
# Usage: tests/demo/demo.sh   (`make demo` installs what it needs, too)
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
export PATH="$top/build:$PATH"
# The caller's variables for gpuarb are for the caller's own programs.
unset LD_PRELOAD "${!GPUARB_@}" "${!SIMCUDA_@}" "${!CUDA_@}"
dir=$(mktemp -d /tmp/gpuarb-demo-XXXXXX)
pids=()
what=

finish() {
    local code=$?
    if ((${#pids[@]})); then
        kill "${pids[@]}" 2>/dev/null || true
        wait "${pids[@]}" 2>/dev/null || true
    fi
    if mountpoint -q "$dir/gpu"; then umount -l "$dir/gpu" || fusermount3 -uz "$dir/gpu"; fi
    if ((code != 0)); then
        echo "demo: failed${what:+ at: $what}; the log:" >&2
        cat "$dir"/*.log >&2
    fi
    rm -rf "$dir"
    exit "$code"
}
trap finish EXIT

say() {
    what=$*
    printf '\n== %s\n' "$*"
}
die() {
    echo "demo: $*" >&2
    exit 1
}
# wait_for TEXT COMMAND...: wait until the command succeeds, the daemon has ended, or 30 seconds have passed.
wait_for() {
    local what=$1 end=$((SECONDS + 30))
    shift
    until "$@"; do
        kill -0 "${pids[0]}" 2>/dev/null || die "the daemon has ended"
        ((SECONDS < end)) || die "timed out waiting until $what"
        read -rt 0.05 <> <(:) || true
    done
}

say "Build it, with a simulated driver for machines without a GPU"
"${MAKE:-make}" -j"$(nproc)" -C "$top" --no-print-directory test-build >"$dir/build.log" 2>&1
rm "$dir/build.log"

# Use the driver of a real GPU, if there is one, else the simulated driver. Both are found
# through the library path.
export GPUARB_SOCKET=$dir/gpuarb.sock
export SIMCUDA_DIR=$dir/sim SIMCUDA_DEVICES=8G SIMCUDA_CONTEXT_BYTES=64M
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    gpu="a real GPU"
else
    gpu="a simulated GPU"
    export LD_LIBRARY_PATH="$top/build/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi

say "Start a daemon of our own, on $gpu: gpuarbd --socket … --mount …"
echo 'schema_version = 1' >"$dir/gpuarb.toml" # instead of the machine's configuration
# With PoCL or lavapipe the processor would be a device, too; the demonstration is about GPUs.
OCL_ICD_VENDORS=/dev/null VK_DRIVER_FILES=/dev/null gpuarbd --config "$dir/gpuarb.toml" --socket "$GPUARB_SOCKET" --mount "$dir/gpu" >"$dir/gpuarbd.log" 2>&1 &
pids+=($!)
wait_for "the daemon serves its files" grep -qs . "$dir/gpu/version"
gpuarb devices

frames=75
quiet=(-nostdin -v error)
source=(-f lavfi -i "testsrc2=size=1280x720:rate=25" -frames:v "$frames")
upload=(-vf "format=nv12,hwupload_cuda,hwdownload,format=nv12")

say "What is the right output? The same frames without any GPU"
ffmpeg "${quiet[@]}" "${source[@]}" -vf format=nv12 -f framemd5 "$dir/right.md5"

say "Run two unmodified ffmpeg processes side by side, with 16M each: gpuarb run --memory 16M -- ffmpeg …"
for n in 1 2; do
    gpuarb run --memory 16M -- ffmpeg "${quiet[@]}" -re "${source[@]}" "${upload[@]}" -f framemd5 "$dir/out$n.md5" &
    workers[n]=$!
    pids+=($!)
done
both_hold() { [[ $(awk 'NR > 1 && $5 > 0' "$dir/gpu/leases" | wc -l) -eq 2 ]]; }
wait_for "both hold memory" both_hold

say "Who holds what, to the byte? cat gpu/leases"
cat "$dir/gpu/leases"

say "A third one gets 1M and needs more: it fails with CUDA's own out-of-memory error, and says why"
code=0
gpuarb run --memory 1M -- ffmpeg "${quiet[@]}" "${source[@]}" "${upload[@]}" -f null - || code=$?
((code != 0)) || die "the third program was not refused"
echo "(exit status $code)"

say "A fourth holds memory and is killed with SIGKILL"
gpuarb run --memory 64M -- ffmpeg "${quiet[@]}" -re -f lavfi -i "testsrc2=size=1920x1080:rate=25" "${upload[@]}" -f null - &
runner=$!
pids+=($!)
three_hold() { [[ $(awk 'NR > 1 && $5 > 0' "$dir/gpu/leases" | wc -l) -ge 3 ]]; }
wait_for "the fourth holds memory" three_hold
victim=$(awk '$6 == 67108864 { print $1 }' "$dir/gpu/leases")
grep -H . "$dir/gpu/devices/0/memory.current"
kill -KILL "$victim"
wait "$runner" 2>/dev/null || true
its_row_is_gone() { ! grep -q "^ *$victim " "$dir/gpu/leases"; }
wait_for "its bytes are back" its_row_is_gone
echo "killed $victim; its bytes are back:"
grep -H . "$dir/gpu/devices/0/memory.current"

say "The first two finish, and their output is right"
for n in 1 2; do
    wait "${workers[n]}"
    cmp <(grep -v '^#' "$dir/right.md5") <(grep -v '^#' "$dir/out$n.md5") || die "output $n differs"
done
echo "$frames frames each, identical to those made without a GPU"
cat "$dir/gpu/leases"
say "Done: the daemon stops, and nothing is left behind"
