// Package fair keeps one user from taking the daemon from the others: whose request is carried out next, how often limits may be
// changed, how often what everybody may read is made anew, and how many lines a user's requests are worth in the log. It knows
// neither requests nor what they are about.
package fair
