// Package containers runs the commands of docs/containers.md with real engines.
package containers
