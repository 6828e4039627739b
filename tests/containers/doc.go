// Package containers runs the commands of docs/admin/containers.md with real engines (Docker and Podman). Other tests make
// mounts of their own, and check the facts about sockets and mounts that these commands rely on. The oracle is the page:
// each command must succeed, and the program in the container must be held to its budget.
package containers
