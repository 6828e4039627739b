#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# dpkg runs this after it has removed gpuarb-kube, and again for a purge. A purge removes the
# links that systemd has for each enabled service.
set -e

case $1 in
remove)
    if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
    ;;
purge)
    for unit in gpuarb-nri.service gpuarb-dra.service; do
        deb-systemd-helper purge "$unit" >/dev/null || true
    done
    ;;
esac
