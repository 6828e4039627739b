// Package containers runs the commands of docs/containers.md with a real engine.
package containers
