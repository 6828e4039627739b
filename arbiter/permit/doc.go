// Package permit keeps the permits of one device: for each kind of permit, the set of owners that have one. Its main type is [Sets]. The
// package says whether another owner may get a permit. An owner has at most one permit of each kind. Grant checks nothing: its caller must
// ask Full first. The package does not know requests, rules or bytes; the arbiter decides when a permit is granted and revoked. Sets are
// not safe for concurrent use.
package permit
