// Package attack does what a hostile, broken or unlucky program, user or machine
// would do to a running daemon, and holds the result against the simulated
// driver's own count: whoever attacks may spoil its own row and no other.
//
// Attackers are processes of their own, since the kernel's word on who connects is
// what limits them: the test's binary starts itself again in a role (roles_test.go).
// What is random is seeded; -attack.seed and -attack.scale change seed and size.
// With -attack.daemon the tests run another gpuarbd, one that was built with -race, say.
package attack
