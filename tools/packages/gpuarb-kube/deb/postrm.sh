#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# dpkg runs this after it has removed gpuarb-kube, and again for a purge. A removal deletes what the
# plug-ins wrote. Without the CDI file of a claim, container runtimes refuse to start a container that has the claim, which
# nothing would hold to its budget. A purge removes the links that systemd has for each enabled service.
set -e

case $1 in
remove)
    if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
    rm -f /run/cdi/gpuarb.dev-claim-*
    rmdir /run/cdi 2>/dev/null || true
    rm -rf /var/lib/kubelet/plugins/gpu.gpuarb.dev
    # Without a kubelet, gpuarb-dra made the folders around it. A kubelet makes pods, and watches the others.
    if [ ! -e /var/lib/kubelet/pods ]; then
        rmdir /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry /var/lib/kubelet 2>/dev/null || true
    fi
    ;;
purge)
    for unit in gpuarb-nri.service gpuarb-dra.service; do
        deb-systemd-helper purge "$unit" >/dev/null || true
    done
    ;;
esac
