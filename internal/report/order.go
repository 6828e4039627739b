package report

// This file sorts the rows of a table by a column. leases.go, holders.go and queue.go call it.

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// ascending are the columns whose numbers name something. They are sorted from the lowest number,
// and all other numbers from the highest.
var ascending = []string{"GPU", "PID", "JOB", "POS", "TICKET", "NSPID"}

// sortRows sorts rows by the column of the selection: amounts and times from the largest, texts in
// alphabetical order. Rows without a value come last. Rows of the same value keep their order.
func sortRows[T any](sel Selection, columns []column[T], rows []T) {
	name, reverse := strings.CutPrefix(sel.Sort, "-")
	i := slices.IndexFunc(columns, func(c column[T]) bool { return strings.EqualFold(c.name, name) })
	if name == "" || i < 0 {
		return
	}
	type keyed struct {
		key sortKey
		row T
	}
	all := make([]keyed, len(rows))
	for k, row := range rows {
		all[k] = keyed{sortKeyOf(columns[i].text(Style{}, row), columns[i].align == right), row}
	}
	falls := !slices.Contains(ascending, columns[i].name)
	slices.SortStableFunc(all, func(x, y keyed) int { return x.key.compare(y.key, falls, reverse) })
	for k := range all {
		rows[k] = all[k].row
	}
}

// sortKey is a cell as it is sorted: a number, a text, or nothing.
type sortKey struct {
	kind   int // cells with the lower kind come first
	number uint64
	text   string
}

// The kinds of cells.
const (
	numbers = iota
	texts
	nothing
)

// sortKeyOf reads a cell of a table in bytes and seconds. In a column of numbers "max" is above every
// number, and of "4096+2" the first number counts. The name of a user may look like a number, and is
// a text.
func sortKeyOf(cell string, number bool) sortKey {
	first, _, _ := strings.Cut(cell, "+")
	n, err := strconv.ParseUint(first, 10, 64)
	switch {
	case cell == "-" || cell == "":
		return sortKey{kind: nothing}
	case number && cell == "max":
		return sortKey{kind: numbers, number: 1<<64 - 1}
	case number && err == nil:
		return sortKey{kind: numbers, number: n}
	}
	return sortKey{kind: texts, text: cell}
}

// compare orders two cells. falls says that the highest number comes first, reverse that the order
// is the other way round.
func (x sortKey) compare(y sortKey, falls, reverse bool) int {
	order := cmp.Compare(x.number, y.number)
	if falls {
		order = -order
	}
	if order = cmp.Or(order, cmp.Compare(x.text, y.text)); reverse {
		order = -order
	}
	return cmp.Or(cmp.Compare(x.kind, y.kind), order)
}

// columnNames returns the names of columns, in lower case.
func columnNames[T any](columns []column[T]) (names []string) {
	for _, c := range columns {
		names = append(names, strings.ToLower(c.name))
	}
	return names
}
