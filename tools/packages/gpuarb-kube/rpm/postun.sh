#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# rpm runs this after it has removed the files; the argument is the number of versions that stay installed. After the removal
# of the last version, it deletes what the plug-ins wrote, as deb/postrm.sh does.

if [ "$1" -ne 0 ]; then exit 0; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
rm -f /run/cdi/gpuarb.dev-claim-*
rmdir /run/cdi 2>/dev/null || true
rm -rf /var/lib/kubelet/plugins/gpu.gpuarb.dev
if [ ! -e /var/lib/kubelet/pods ]; then
    rmdir /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry /var/lib/kubelet 2>/dev/null || true
fi
exit 0
