// Package bounded starts the programs of tests so that none of them can hold a
// test up. It drives no part of gpuarb and has no oracle; it is test equipment.
//
// Each program has a time limit. When the limit passes, the test fails with the stacks of all
// threads of the program. The program is killed with all processes that it started, so that
// readers of its output see the end of it. Processes that remain at the end of the test are killed too.
package bounded
