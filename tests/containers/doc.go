// Package containers runs the commands of docs/containers.md with real engines, and what these rely on with mounts of its own.
package containers
