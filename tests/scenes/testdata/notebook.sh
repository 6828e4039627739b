# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # $scene and the functions are scene_test.go's
#
# A notebook's user has neither root nor access to FUSE. The user's own daemon works without the
# mount. When it has died, a command that uses the system's daemon instead says so.
readonly user=65534
export XDG_RUNTIME_DIR=/run/user/$user HOME=$scene/home
install -d -o $user -g $user -m 0700 "$XDG_RUNTIME_DIR" "$HOME"
readonly own=$XDG_RUNTIME_DIR/gpuarb/gpuarb.sock system=/run/gpuarb/gpuarb.sock

# Run without the right to mount, as in a container or under no-new-privileges.
daemon "$scene/own.log" setpriv --reuid=$user --regid=$user --clear-groups --no-new-privs gpuarbd --user
readonly first=$!
expect 'no filesystem: the commands work without it' "$scene/own.log"
[ ! -e "$XDG_RUNTIME_DIR/gpuarb/gpu" ]
as $user gpuarb ps >"$scene/out" 2>"$scene/err"
expect 'PID USER GPU' "$scene/out"
nowhere daemon "$scene/err"
as $user gpuarb run --memory 64M -- cudaprog-dlsym </dev/null

# With two daemons each command names its daemon, but not on stdout.
daemon "$scene/system.log" gpuarbd --mount none
for command in ps devices queue; do
    as $user gpuarb $command >"$scene/out" 2>"$scene/err"
    expect "this is your own daemon at $own; for the system's: --socket $system" "$scene/err"
    nowhere daemon "$scene/out"
    as $user gpuarb --socket $system $command 2>"$scene/err" >"$scene/out"
    nowhere daemon "$scene/err"
done

# The user's own daemon dies. Commands name the daemon that answers instead.
kill -KILL "$first"
wait "$first" 2>/dev/null || true
for command in ps devices queue; do
    as $user gpuarb $command >"$scene/out" 2>"$scene/err"
    expect "your own daemon at $own does not answer; this is the system's at $system" "$scene/err"
done
as $user gpuarb run -- true 2>"$scene/err"
expect "your own daemon at $own does not answer" "$scene/err"

# If a named mount is impossible, the daemon says so.
status=0
as $user setpriv --no-new-privs gpuarbd --user --mount "$HOME/gpu" 2>"$scene/err" || status=$?
[ $status = 1 ]
expect 'FUSE is not available' "$scene/err"
