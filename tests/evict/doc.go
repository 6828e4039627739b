// Package evict tests that an idle job gives its memory back when another program waits for memory, and that it can take that memory
// again later. The daemon, the programs and the hooks are real. The simulated driver counts the bytes in use, and the tests compare with
// its count.
package evict
