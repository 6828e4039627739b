// Package fair keeps one user from taking the daemon from the others: whose request is carried out next, how often limits may be
// changed, how often what everybody may read is made anew, and how much of a user's is told, or looked up, in a period. It knows
// neither requests nor what they are about.
package fair
