#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# rpm runs this after it has installed the files. It enables no service: the administrator does that.
# An upgrade restarts the services that run.

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    for unit in /usr/lib/systemd/system/gpuarb-*.service; do
        systemctl try-restart "${unit##*/}" || true
    done
fi
exit 0
