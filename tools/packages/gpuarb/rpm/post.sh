#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# rpm runs this after it has installed the files; the argument is the number of versions that are then
# installed. It makes the system users and the mount point. A distribution with rpm decides by its
# presets whether a service is enabled, and starts none by itself. After an upgrade the daemon is
# restarted, which ends no program.

systemd-sysusers gpuarb.conf
systemd-tmpfiles --create gpuarb.conf || true # in some containers /gpu cannot be made
if [ "$1" -eq 1 ]; then
    systemctl --no-reload preset gpuarbd.socket gpuarbd.service >/dev/null 2>&1 || true
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    if [ "$1" -gt 1 ]; then systemctl try-restart gpuarbd.service || true; fi
fi
exit 0
