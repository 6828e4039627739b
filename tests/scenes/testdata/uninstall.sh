# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # $scene and the functions are scene_test.go's
#
# The installation is removed again. The uninstaller refuses while programs are under gpuarb. Afterwards it
# lists what is left, and how to remove that. /etc, /home and /usr/local belong to the scene, and so do its processes.
if [ -z "${inner:-}" ]; then
    inner=1 exec unshare --pid --fork --kill-child --mount-proc bash -euo pipefail -c "$BASH_EXECUTION_STRING" "$0"
fi
checkout=$(cd "$(dirname "$0")/../../.." && pwd)
readonly checkout library=/usr/local/lib/gpuarb/libgpuarb.so
own_folders
useradd --create-home --shell /bin/sh ann
rm "$scene/bin/gpuarb" "$scene/bin/gpuarbd" "$scene/bin/libgpuarb.so"
PATH=/usr/local/bin:$PATH

# Imitate a machine booted by systemd, as far as the uninstaller checks.
mkdir -p /run/systemd/system
cat >"$scene/bin/systemctl" <<.
#!/bin/sh
echo "\$*" >>"$scene/asked"
case \$* in
show*) echo /usr/local/lib/systemd/system/gpuarbd.service ;;
*is-active*) exit 3 ;;
esac
.
chmod +x "$scene/bin/systemctl"

make --no-print-directory -C "$checkout" install >"$scene/out"
expect 'installed under /usr/local. To start the daemon, as root:' "$scene/out"
[ -e /usr/local/share/doc/gpuarb/README.md ]
daemon "$scene/log" gpuarbd --mount none
readonly daemon=$!
LD_PRELOAD=$library sleep 1000 &
readonly program=$!
until grep -qs $library /proc/$program/maps; do sleep 0.02; done

# The uninstaller names what would miss the library, with the command to release it, and removes nothing.
gpuarb enable --user ann >"$scene/out"
status=0
make --no-print-directory -C "$checkout" uninstall >"$scene/out" 2>"$scene/err" || status=$?
[ $status = 2 ]
expect 'uninstall: programs are still put under gpuarb, and would miss the library. First, as root:' "$scene/err"
[ -e $library ] && [ -x /usr/local/bin/gpuarbd ]
nowhere disable "$scene/asked"
bash -e -c "$(grep '^    gpuarb disable ' "$scene/err")" >"$scene/out"

# The uninstaller stops the service, and lists what is left.
make --no-print-directory -C "$checkout" uninstall >"$scene/out" 2>"$scene/err"
nowhere . "$scene/err"
expect '--quiet disable --now gpuarbd.socket gpuarbd.service' "$scene/asked"
expect daemon-reload "$scene/asked"
[ -z "$(find /usr/local -name '*gpuarb*' ! -type d)" ]
expect 'left: /etc/gpuarb; to remove it: rm -r /etc/gpuarb' "$scene/out"
expect 'left: /run/gpuarb; to remove it: rm -r /run/gpuarb' "$scene/out"
expect "left: process $daemon, a daemon that somebody started (root); to stop it: kill $daemon" "$scene/out"
expect 'left: programs that run with the library loaded; they keep it until they end' "$scene/out"

# After the commands that it lists, nothing is left. (/gpu belongs to the machine.)
sed -n -e '\,/gpu;,d' -e 's/.*; to [a-z ]*: //p' "$scene/out" >"$scene/remove"
bash -e "$scene/remove"
wait "$daemon" || true
kill $program
wait $program || true
make --no-print-directory -C "$checkout" uninstall >"$scene/out" 2>&1
sed -i '\,left: /gpu;,d' "$scene/out"
nowhere . "$scene/out"
