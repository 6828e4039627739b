// Package permit keeps the permits of one device: for each kind of permit, the set of owners that have one. Its main type is [Sets]. The
// package says whether another owner may get a permit. It does not know requests, rules or bytes; the arbiter decides when a permit is
// granted and revoked. Sets are not safe for concurrent use.
package permit
