// Package attack drives a running daemon with hostile, broken and unlucky programs, users
// and machines. The oracle is the simulated driver's own count: an attacker may spoil its
// own row, and no other row.
//
// Attackers are processes of their own, because the daemon limits each client by the identity that the
// kernel reports for it. The test binary starts itself again in a role (roles_test.go).
// Random choices are seeded; -attack.seed and -attack.scale change seed and size.
// With -attack.daemon the tests run another gpuarbd, for example a build with -race.
package attack
