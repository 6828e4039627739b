#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# machine.sh FOLDER NODE: a machine for tests, with Slurm's configuration in FOLDER/etc/slurm and gpuarb below
# FOLDER/local. It has mount, network, PID, IPC and host name namespaces of its own. The script prints the PID of
# the machine's first process, and ends when its standard input does: at the end of the test, also if the test was
# killed. Then all processes of the machine end, and the script removes its cgroups and FOLDER.
set -euo pipefail

# first DIR NODE: the machine's first process. Daemons and programs enter its namespaces (nsenter).
first() {
    local dir=$1 node=$2 place
    mount --make-rprivate /
    hostname "$node"
    ip link set lo up
    ip addr add 10.61.0.1/32 dev lo # without any other address than 127.0.0.1 the resolver finds none
    mknod "$dir/etc/slurm/gpu0" c 1 3
    mknod "$dir/etc/slurm/gpu1" c 1 3
    cp -a /etc/{passwd,group,hosts,nsswitch.conf,ld.so.conf,ld.so.conf.d,ld.so.cache,alternatives,localtime,ssl} "$dir/etc" 2>/dev/null || true
    printf '127.0.0.1 localhost %s\n' "$node" >"$dir/etc/hosts"
    printf '%s:x:%d:%d::/:/bin/bash\n' ann 61001 61001 ben 61002 61002 >>"$dir/etc/passwd"
    printf '%s:x:%d:\n' ann 61001 ben 61002 >>"$dir/etc/group"
    mount --bind "$dir/etc" /etc
    mount --bind "$dir/local" /usr/local
    for place in /run /var/log /var/lib /var/spool; do
        mount -t tmpfs -o mode=755 tmpfs "$place"
    done
    mkdir -p /run/over/{upper,work} # a /usr/lib that the machine can write to
    mount -t overlay -o lowerdir=/usr/lib,upperdir=/run/over/upper,workdir=/run/over/work overlay /usr/lib
    install -d -o munge -g munge -m 755 /run/munge
    install -d -o munge -g munge -m 700 /var/log/munge /var/lib/munge
    install -d /var/log/slurm /var/lib/slurm /var/spool/slurm
    chown munge:munge /etc/munge /etc/munge/munge.key
    chmod 400 /etc/munge/munge.key
    ldconfig
    echo ready
    while read -r _; do :; done # bash reaps the daemons' processes meanwhile
}

# remove_cgroups NODE: removes the cgroups that Slurm made, from the deepest up.
remove_cgroups() {
    local folder
    for folder in /sys/fs/cgroup/*/"slurm_$1"; do
        if [ -d "$folder" ]; then find "$folder" -depth -type d -exec rmdir {} \;; fi
    done
}

main() {
    if [ "$1" = --first ]; then
        first "$2" "$3"
        return
    fi
    trap '' HUP INT TERM # whoever ends the test ends it by closing the standard input
    unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc "$0" --first "$1" "$2" || true
    remove_cgroups "$2" || true
    rm -rf -- "$1"
}

main "$@"
