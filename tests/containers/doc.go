// Package containers starts containers with real engines: podman with gpuarb's CDI devices, and podman and docker with the
// commands of docs/admin/containers.md, section "By hand". The oracle is the simulated driver's count, and the answer to an
// allocation of one byte more than the budget. Other tests make mounts of their own, and check the facts about sockets and
// mounts that the commands rely on.
package containers
