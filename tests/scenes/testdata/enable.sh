# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2016 # $scene and the functions are scene_test.go's
#
# The sessions of a user, the sessions of a group, and then all programs of the machine are put
# under gpuarb and released again. /etc, /home and /usr/local belong to the scene.
own_folders
rm -f /etc/ld.so.preload
install -D -t /usr/local/bin "$scene/bin/gpuarb"
install -D -t /usr/local/lib/gpuarb "$scene/bin/libgpuarb.so"
install -D -t /usr/local/lib/gpuarb/no-exports "$scene/bin/no-exports/libgpuarb.so"
PATH=/usr/local/bin:$PATH
hash -r
groupadd students
for user in ann bob eve; do
    useradd --create-home --shell /bin/sh $user
done
usermod --append --groups students bob
state() { (cd /etc && find . -type f -exec md5sum {} + | sort; find . -type d -printf '%p %m\n' | sort); }
# fails STATUS TEXT COMMAND...: the command must fail with this status and text.
fails() {
    local status=0
    "${@:3}" >"$scene/out" 2>"$scene/err" || status=$?
    [ "$status" = "$1" ] || { echo "$*: exit status $status"; cat "$scene/out" "$scene/err"; exit 1; }
    expect "$2" "$scene/err"
}
mkdir -p /etc/gpuarb
state >"$scene/before"
gpuarb status >"$scene/out"
expect 'Nothing is enabled' "$scene/out"

# Sessions. The sessions of other users do not change.
gpuarb enable --user ann --memory 2G
gpuarb enable --group students --memory 25%
session() { su --login "$1" --command 'echo "$LD_PRELOAD $GPUARB_MEMORY"' 2>"$scene/err"; }
[ "$(session ann)" = '/usr/local/lib/gpuarb/libgpuarb.so 2G' ]
[ "$(session bob)" = '/usr/local/lib/gpuarb/libgpuarb.so 25%' ]
[ "$(session eve)" = ' ' ]
gpuarb status >"$scene/out"
expect '/etc/gpuarb/session-user-ann.conf' "$scene/out"
expect '/etc/gpuarb/session-group-students.conf' "$scene/out"
gpuarb enable --user ann # removes the user's own limit
[ "$(session ann)" = '/usr/local/lib/gpuarb/libgpuarb.so ' ]
gpuarb enable --user ann --no-exports
[ "$(session ann)" = '/usr/local/lib/gpuarb/no-exports/libgpuarb.so ' ]
gpuarb enable --user ann
[ "$(session ann)" = '/usr/local/lib/gpuarb/libgpuarb.so ' ]
gpuarb enable --all --no-exports
[ "$(cat /etc/ld.so.preload)" = /usr/local/lib/gpuarb/no-exports/libgpuarb.so ]
env -i cat /proc/self/maps >"$scene/out"
expect no-exports/libgpuarb.so "$scene/out"
fails 1 'this machine has no user nobodyatall' gpuarb enable --user nobodyatall
fails 1 'this machine has no group nobodyatall' gpuarb enable --group nobodyatall
fails 1 'only root may do this' setpriv --reuid=ann --clear-groups gpuarb enable --all

# All programs, including those without an environment. Settings that exist already stay.
gpuarb enable --all
[ "$(cat /etc/ld.so.preload)" = /usr/local/lib/gpuarb/libgpuarb.so ]
env -i cat /proc/self/maps >"$scene/out"
expect libgpuarb.so "$scene/out"
gpuarb status >"$scene/out"
expect /etc/ld.so.preload "$scene/out"
vulkan() { su --login "$1" --command 'echo "$LD_PRELOAD $GPUARB_VULKAN"'; }
[ "$(vulkan eve)" = ' 1' ]
[ "$(vulkan ann)" = '/usr/local/lib/gpuarb/libgpuarb.so 1' ]

# Lines that an administrator adds meanwhile stay, to the byte.
echo '# of ours' >>/etc/pam.d/common-session
gpuarb disable --all
[ "$(vulkan eve)" = ' ' ]
gpuarb disable --group students
gpuarb disable --user ann
fails 1 'was not enabled' gpuarb disable --user ann
[ "$(tail -n 1 /etc/pam.d/common-session)" = '# of ours' ]
sed -i '$d' /etc/pam.d/common-session
[ "$(session ann)" = ' ' ]
state >"$scene/after"
diff "$scene/before" "$scene/after"

# A library that does not load, or that users other than root can write, is refused.
mv /usr/local/lib/gpuarb/libgpuarb.so "$scene/good"
head -c 4096 "$scene/good" >/usr/local/lib/gpuarb/libgpuarb.so
fails 1 'does not load' gpuarb enable --all
fails 1 'does not load' gpuarb enable --user ann
cp "$scene/good" /usr/local/lib/gpuarb/libgpuarb.so
chmod 775 /usr/local/lib/gpuarb
fails 1 'can be written by others than root' gpuarb enable --all
chmod 755 /usr/local/lib/gpuarb
# If the list already has a library that does not exist, it is not changed.
echo /usr/local/lib/gone.so >/etc/ld.so.preload
fails 1 gone.so gpuarb enable --all
[ "$(cat /etc/ld.so.preload)" = /usr/local/lib/gone.so ]
rm /etc/ld.so.preload
state >"$scene/after"
diff "$scene/before" "$scene/after"
