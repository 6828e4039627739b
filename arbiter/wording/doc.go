// Package wording is the English of the arbiter: the sentences in which people are told what it
// decides, and how programs, users and jobs are called in them. Who decides fills the facts in.
package wording
