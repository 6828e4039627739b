#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# dpkg runs this after it has removed gpuarb, and again for a purge. A removal leaves the
# configuration and the history. A purge leaves only the system users and their group.
set -e

case $1 in
remove)
    if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
    rm -f /run/cdi/gpuarb.json     # it names programs that are gone
    rmdir /run/cdi 2>/dev/null || true
    rm -rf /run/gpuarb             # it has the state file, which no daemon will read any more
    rmdir /gpu 2>/dev/null || true # fails if something is mounted there or in it
    ;;
purge)
    deb-systemd-helper purge gpuarbd.socket gpuarbd.service >/dev/null || true
    rm -rf /etc/gpuarb /var/lib/gpuarb
    ;;
esac
