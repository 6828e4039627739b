// Package inventory says which GPUs the machine has, who uses them, and what is
// known about a process.
package inventory
