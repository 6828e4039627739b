#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# dpkg runs this after it has unpacked gpuarb-kube. The administrator enables the services, because they
# change how containers of the node start. An upgrade restarts the services that run.
set -e

if [ "$1" != configure ]; then exit 0; fi

for unit in /usr/lib/systemd/system/gpuarb-*.service; do
    unit=${unit##*/}
    deb-systemd-helper update-state "$unit" >/dev/null || true # records the links that a purge has to remove
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
        deb-systemd-invoke try-restart "$unit" >/dev/null || true
    fi
done
