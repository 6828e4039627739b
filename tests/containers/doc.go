// Package containers runs the commands of docs/admin/containers.md with real engines, and tests with mounts of its own what these commands rely on.
package containers
