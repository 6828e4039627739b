#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# setup.sh go|build|demo|test|full|lint|slurm|image|root: makes sure that the tools for a target exist. Each
# tool is looked up by itself, so that a tool from another source than Debian counts. On Debian root
# installs missing tools; otherwise the script lists them. If all tools exist, this takes a few
# milliseconds.
set -euo pipefail

# The release of clang that is used, or that would be installed.
clang=$(clang -dumpversion 2>/dev/null || echo 14)

# Each row has a Debian package, a probe and the targets that need the package. A probe is a
# command, a path (which may be a pattern), or a file in the folder of clang's runtime.
readonly packages="
gcc                       gcc                                    build
libc6-dev                 /usr/include/stdlib.h                  build
git                       git                                    lint test
clang                     clang                                  test
libclang-rt-${clang%%.*}-dev        clang:libclang_rt.fuzzer*.a            test
fuse3                     fusermount3                            demo test
ffmpeg                    ffmpeg                                 demo test
python3                   /usr/bin/python3                       lint demo test
python3-numba             /usr/lib/python3/dist-packages/numba   demo test
python3-halide            /usr/lib/python3/dist-packages/halide* test
python3-pytest-xdist      /usr/lib/python3/dist-packages/xdist   test
python3-pytest-timeout    /usr/lib/python3/dist-packages/pytest_timeout.py test
cmake                     ctest                                  test
libgomp-plugin-nvptx1     /usr/lib/*/libgomp-plugin-nvptx.so.1   test
gstreamer1.0-tools        gst-launch-1.0                         test
gstreamer1.0-plugins-base /usr/lib/*/gstreamer-1.0/libgstvideotestsrc.so test
gstreamer1.0-plugins-bad  /usr/lib/*/gstreamer-1.0/libgstnvcodec.so test
pocl-opencl-icd           /etc/OpenCL/vendors/pocl.icd           test
ocl-icd-libopencl1        /usr/lib/*/libOpenCL.so.1              test
clinfo                    clinfo                                 test
clpeak                    clpeak                                 full
darktable                 darktable-cli                          full
python3-pyopencl          /usr/lib/python3/dist-packages/pyopencl test
python3-dev               /usr/include/python3.*/Python.h        test
ocl-icd-opencl-dev        /usr/include/CL/cl.h                   lint demo test
mesa-vulkan-drivers       /usr/share/vulkan/icd.d/lvp_icd*.json  test
libvulkan-dev             /usr/include/vulkan/vulkan.h           lint demo test
vulkan-tools              vulkaninfo                             test
vulkan-validationlayers   /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json test
mangohud                  /usr/share/vulkan/implicit_layer.d/MangoHud*.json test
xvfb                      Xvfb                                   test
chromium                  chromium                               test
curl                      curl                                   test
jq                        jq                                     test
strace                    strace                                 test
tmux                      tmux                                   test
bash-completion           /usr/share/bash-completion/bash_completion test
zsh                       zsh                                    test
fish                      fish                                   test
man-db                    man                                    test
mandoc                    mandoc                                 test
musl-tools                musl-gcc                               test
libjemalloc2              /usr/lib/*/libjemalloc.so.2            test
libtcmalloc-minimal4      /usr/lib/*/libtcmalloc_minimal.so.4    full
libgoogle-perftools4      /usr/lib/*/libtcmalloc.so.4            test
libmimalloc2.0            /usr/lib/*/libmimalloc.so.2            full
libfaketime               /usr/lib/*/faketime/libfaketime.so.1   test
libeatmydata1             /usr/lib/*/libeatmydata.so             full
heaptrack                 heaptrack                              full
fakeroot                  fakeroot                               test
valgrind                  valgrind                               full
procps                    ps                                     demo test
util-linux                unshare                                demo test
clang-format              clang-format                           lint
clang-tidy                clang-tidy                             lint
cppcheck                  cppcheck                               lint
shellcheck                shellcheck                             lint
systemd                   systemd-analyze                        lint test
debootstrap               debootstrap                            full image root
systemd-container         systemd-nspawn                         full
podman                    podman                                 full image
uidmap                    newuidmap                              full
lintian                   lintian                                full
rpm                       rpm                                    full
runc                      runc                                   full
crun                      crun                                   full
prometheus                promtool                               full
docker.io                 dockerd                                full
python3-ipykernel         /usr/lib/python3/dist-packages/ipykernel full
python3-jupyter-client    /usr/lib/python3/dist-packages/jupyter_client full
jupyterhub                jupyterhub                             full
libslurm-dev              /usr/include/slurm/spank.h             slurm full
slurm-wlm-basic-plugins   /usr/lib/*/slurm*/proctrack_cgroup.so  full
slurmctld                 slurmctld                              full
slurmd                    slurmd                                 full
munge                     munged                                 full
iproute2                  ip                                     full
"

# present PROBE: succeeds if the command, or a file that matches the pattern, exists.
present() {
    local folder
    case $1 in
    # Each release of clang needs its own runtime, so ask this clang for the folder.
    clang:*) folder=$(clang -print-runtime-dir 2>/dev/null) && compgen -G "$folder/${1#clang:}" >/dev/null ;;
    /*) compgen -G "$1" >/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

# wanted TARGET GROUP...: succeeds if the target needs a package of these groups.
wanted() {
    local target=$1 group
    shift
    for group; do
        case $target/$group in
        root/root | full/test) return 0 ;;
        root/*) ;; # it builds nothing
        */build | "$target/$target") return 0 ;;
        esac
    done
    return 1
}

# missing TARGET: prints the missing packages, one per line.
missing() {
    local package probe groups
    while read -r package probe groups; do
        # shellcheck disable=SC2086 # the groups are words
        if [ -n "$package" ] && wanted "$1" $groups && ! present "$probe"; then
            echo "$package"
        fi
    done <<<"$packages"
}

# install_packages PACKAGE...: installs packages, and shows apt's output if that fails.
install_packages() {
    local log
    log=$(mktemp)
    if ! apt_install "$@" >"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
        apt-get update -q || return
    fi
    # A list that is older than the archive names removed files: fetch the list and try again.
    apt-get install -q -y --no-install-recommends "$@" ||
        { apt-get update -q && apt-get install -q -y --no-install-recommends "$@"; }
}

# check_go: checks for a Go that can build this. Since 1.21, Go fetches the release that go.mod asks
# for.
check_go() {
    local needed have
    needed=$(sed -n 's/^go //p' "$(dirname "$0")/../go.mod")
    if ! command -v "${GO:-go}" >/dev/null; then
        echo "gpuarb: no Go toolchain in PATH (\"${GO:-go}\"). Go $needed is needed: https://go.dev/dl; then put its bin into PATH, or say make GO=/path/to/go" >&2
        return 1
    fi
    have=$("${GO:-go}" env GOVERSION 2>&1) || true
    if [[ $have == go1.* ]] && ! printf '%s\n' "${have#go}" 1.21 | sort -CVr; then
        echo "gpuarb: $(command -v "${GO:-go}") is Go ${have#go}. Go $needed is needed: https://go.dev/dl" >&2
        return 1
    fi
}

main() {
    local target=${1:?usage: setup.sh go|build|demo|test|full|lint|slurm|image|root}
    local -a need
    check_go || return
    if [ "$target" = go ]; then return; fi
    mapfile -t need < <(missing "$target")
    if [ "${#need[@]}" -eq 0 ]; then
        return 0
    fi
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "gpuarb: make $target needs more tools. On Debian, as root:" >&2
        echo "    apt-get install --no-install-recommends ${need[*]}" >&2
        return 1
    fi
    echo "gpuarb: installing ${need[*]}" >&2
    install_packages "${need[@]}"
    mapfile -t need < <(missing "$target")
    if [ "${#need[@]}" -ne 0 ]; then
        echo "gpuarb: installed, and still not found: ${need[*]}" >&2
        return 1
    fi
}

main "$@"
