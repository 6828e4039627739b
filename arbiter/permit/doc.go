// Package permit keeps who has a permit of a device: for each kind of permit the set of those who have one, by whose it is, not
// how many there are. It says who else may have one, and in which order; it knows no ticket, no rule and no byte. The arbiter
// has the sets of each device, and decides when somebody needs a permit and when one is given back.
package permit
