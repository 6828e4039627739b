package metrics

// This file makes label values of names that users chose. view.go, devices.go and machine.go call
// it.

import "strings"

// distinct makes different label values of names, because a duplicate series makes the whole text
// invalid.
func distinct(names []string) []string {
	seen := make(map[string]bool, len(names))
	labels := make([]string, len(names))
	for i, name := range names {
		label := labelValue(name)
		for seen[label] {
			label += "'"
		}
		seen[label] = true
		labels[i] = label
	}
	return labels
}

// labelValue returns a name that a user chose as a label value, which must be UTF-8.
func labelValue(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
