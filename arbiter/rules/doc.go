// Package rules finds the rule of the configuration that applies to a process, and computes the limits of jobs, processes and users. A
// limit comes from the rule, from the request that started a program, from a live change, and from the size of the device. Each limit has
// the name of its source, for messages. The main types are [Policy], which the configuration builds, [Job], [Client] and [Table]. Of each
// limit of an owner, a Table has at most one row for each device and each kind of setter (the owner, or a privileged user).
//
// The package does not know what is held or what waits, and does not change the ledger: the arbiter asks for limits and puts them in force.
// The daemon's lock guards all its data.
package rules
