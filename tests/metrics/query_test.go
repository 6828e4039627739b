package metrics

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// This file reads an export of the daemon and compares a PromQL query with its names and labels, for board_test.go.

// series are the label values that a daemon exports under one metric name, by label.
type series map[string]map[string]bool

// exports are all metric names of an export, including the names of a histogram's parts.
type exports map[string]series

// line matches a sample of the text format: name, labels and value. label matches one label.
var (
	line  = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? \S+$`)
	label = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
)

// exportsOf reads the text that a daemon exports, in the text format of Prometheus.
func exportsOf(text string) exports {
	all := exports{}
	for _, l := range strings.Split(text, "\n") {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue // a comment, or the end
		}
		if all[m[1]] == nil {
			all[m[1]] = series{}
		}
		for _, pair := range label.FindAllStringSubmatch(m[2], -1) {
			if all[m[1]][pair[1]] == nil {
				all[m[1]][pair[1]] = map[string]bool{}
			}
			all[m[1]][pair[1]][pair[2]] = true
		}
	}
	return all
}

// Expressions for the names and labels in a query.
var (
	selector  = regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)"([^"]*)"`)
	grouping  = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left) \(([^)]*)\)`)
	metric    = regexp.MustCompile(`\b([a-z]+_[a-z_]+)(?:\{([^}]*)\})?`)
	functions = []string{"clamp_min", "histogram_quantile", "label_replace", "label_values"} // with names like those of metrics
	added     = []string{"instance", "job"}                                                  // the labels that the server adds to each series
)

// check returns an error if a query names something that is not exported: a metric, a label or value of a selection, or a label to group by
// that none of its metrics has. It does not check that the query is PromQL; promtool does (TestFullRules).
func (all exports) check(query string) error {
	var used, groups []string // labels of its metrics; labels that it groups by
	for _, m := range grouping.FindAllStringSubmatch(query, -1) {
		groups = append(groups, strings.Split(m[1], ", ")...)
	}
	for _, m := range metric.FindAllStringSubmatch(grouping.ReplaceAllString(query, ""), -1) {
		labels, ok := all[m[1]]
		switch {
		case slices.Contains(functions, m[1]):
			continue
		case !ok:
			return fmt.Errorf("no metric is called %s", m[1])
		}
		used = append(used, added...)
		used = slices.AppendSeq(used, maps.Keys(labels))
		for _, s := range selector.FindAllStringSubmatch(m[2], -1) {
			switch values := labels[s[1]]; {
			case values == nil && !slices.Contains(added, s[1]):
				return fmt.Errorf("%s has no label %s", m[1], s[1])
			case s[2] == "=" && values != nil && !values[s[3]]:
				return fmt.Errorf("the label %s of %s is never %q", s[1], m[1], s[3])
			}
		}
	}
	for _, l := range groups {
		if !slices.Contains(used, l) {
			return fmt.Errorf("groups by %s, which no metric in it has", l)
		}
	}
	if len(used) == 0 {
		return errors.New("it asks for no metric")
	}
	return nil
}
