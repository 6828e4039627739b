#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# playground.sh: opens a shell with a daemon of its own on two simulated GPUs, to try gpuarb in. It needs
# neither a GPU nor root. Socket, files and state lie in a temporary folder, which is removed at the
# end, however the shell or this script ends.
#
# Usage: tests/demo/playground.sh   (`make playground` also installs what it needs)
#        BUILD=FOLDER tests/demo/playground.sh   uses programs that are built already
#
# Three processes work together. This script starts the daemon and the shell. A guard ends both, and
# all programs that the shell has left, when this script ends: it reads from a pipe that only this script
# writes to, so that it also learns of SIGKILL.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# guard FOLDER: waits until the playground ends, and then removes all that it left.
guard() {
    local dir=$1 file pid
    trap '' INT QUIT HUP TERM
    cat >/dev/null
    # Each program of the playground has its socket in the environment, also one in the background.
    for file in /proc/[0-9]*/environ; do
        pid=${file#/proc/}
        if { grep -qz "^GPUARB_SOCKET=$dir/" "$file"; } 2>/dev/null; then
            kill -HUP "${pid%/environ}" 2>/dev/null || true
            kill -KILL "${pid%/environ}" 2>/dev/null || true
        fi
    done
    if pid=$(cat "$dir/daemon.pid" 2>/dev/null); then
        kill "$pid" 2>/dev/null || true
        timeout 5 tail -s 0.05 --pid="$pid" -f /dev/null || kill -KILL "$pid" 2>/dev/null || true
    fi
    if grep -qF " $dir/gpu " /proc/self/mountinfo; then # mountpoint fails if the daemon was killed
        umount -l "$dir/gpu" 2>/dev/null || fusermount3 -uz "$dir/gpu" || true
    fi
    rm -rf "$dir"
}
if [ "${1:-}" = --guard ]; then
    guard "$2"
    exit
fi

die() {
    echo "playground: $*" >&2
    exit 1
}

# The caller's variables for gpuarb are for the caller's own programs.
unset LD_PRELOAD STATE_DIRECTORY "${!GPUARB_@}" "${!SIMCUDA_@}" "${!CUDA_@}"
dir=$(mktemp -d "${TMPDIR:-/tmp}/gpuarb-playground-XXXXXX")
chmod 711 "$dir" # root's daemon keeps the history in a process of another user, which must get in
exec {life}> >(exec setsid "${BASH_SOURCE[0]}" --guard "$dir")
guard=$!
# end closes the pipe, and waits until the guard has removed everything.
end() {
    exec {life}>&-
    wait "$guard" || true
}
trap end EXIT

if [ -z "${BUILD:-}" ]; then
    BUILD=$top/build
    echo "Building gpuarb and the simulated driver …"
    "${MAKE:-make}" -j"$(nproc)" -C "$top" --no-print-directory build >"$dir/build.log" 2>&1 {life}>&- ||
        { cat "$dir/build.log" >&2 && die "the build failed"; }
fi
for program in gpuarbd gpuarb libgpuarb.so sim/libcuda.so.1; do
    [ -r "$BUILD/$program" ] || die "$BUILD/$program is not there: run make"
done

export PATH="$BUILD:$top/tests/demo:$PATH" LD_LIBRARY_PATH="$BUILD/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export SIMCUDA_DIR=$dir/sim SIMCUDA_DEVICES=8G,8G SIMCUDA_CONTEXT_BYTES=256M
export NUMBA_CUDA_DRIVER=$BUILD/sim/libcuda.so.1
config=$dir/gpuarb.toml
cat >"$config" <<END
# The playground's configuration. Change it, and type reload.
schema_version = 1
END
mount=$dir/gpu
[ -w /dev/fuse ] && { [ "$(id -u)" = 0 ] || command -v fusermount3 >/dev/null; } || mount=none
# With PoCL or lavapipe the processor would be a device, too; the playground is about GPUs.
OCL_ICD_VENDORS=/dev/null VK_DRIVER_FILES=/dev/null XDG_STATE_HOME=$dir/state \
    setsid gpuarbd --config "$config" --socket "$dir/gpuarb.sock" --mount "$mount" >"$dir/gpuarbd.log" 2>&1 </dev/null {life}>&- &
daemon=$!
echo "$daemon" >"$dir/daemon.pid"
export GPUARB_SOCKET=$dir/gpuarb.sock
until gpuarb status >/dev/null 2>&1 {life}>&-; do
    kill -0 "$daemon" 2>/dev/null || { cat "$dir/gpuarbd.log" >&2 && die "the daemon has ended"; }
    read -rt 0.05 <> <(:) || true
done

# The user's own settings come first, because they may set PATH and the prompt.
rc=$dir/rc
{
    echo 'if [ -r ~/.bashrc ]; then . ~/.bashrc; fi'
    declare -p PATH LD_LIBRARY_PATH SIMCUDA_DIR SIMCUDA_DEVICES SIMCUDA_CONTEXT_BYTES NUMBA_CUDA_DRIVER GPUARB_SOCKET | sed 's/^declare -x/export/'
    if [ "$mount" != none ]; then echo "export GPU='$mount'"; fi
    echo "unset PROMPT_COMMAND; PS1='(gpuarb playground) \\w\\\$ '; HISTFILE='$dir/history'"
    echo "reload() { kill -HUP $daemon && echo \"read again: $config\"; }"
    # shellcheck disable=SC2016 # the shell of the playground expands it
    echo 'if declare -F _init_completion >/dev/null; then . <(gpuarb completion bash); fi'
} >"$rc"

cat <<END

A playground: gpuarbd serves two simulated GPUs of 8 GiB. Nothing here touches a real GPU, or another daemon.

  gpuarb devices                          what there is
  gpuarb run --name a -- hold 3G &        a program that holds 3 GiB: hold SIZE [DEVICE]
  gpuarb run --memory 1G -- hold 2G       a budget, a refusal and its reason
  gpuarb run --wait -- hold 6G &          it waits until the first has ended: kill %1
  gpuarb ps; gpuarb queue; gpuarb why     who holds what, who waits, and for whom
  gpuarb top                              the same on a screen
  hold 1G 1 &                             a program that gpuarb does not know, on GPU 1
END
if [ "$mount" != none ]; then
    echo "  cat \$GPU/leases; ls \$GPU                the state as files (\$GPU is what /gpu is on a real machine)"
else
    echo "  (no files: FUSE cannot be used here)"
fi
cat <<END
  \$EDITOR $config; reload

exit, or Ctrl-D, ends it, and leaves nothing behind.

END
bash --rcfile "$rc" -i {life}>&- || true
