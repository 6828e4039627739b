package metrics

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// series is what a daemon exports under one name: of each label the values.
type series map[string]map[string]bool

// exports are all names of a text, those of a histogram's parts included.
type exports map[string]series

// line is a value of the text format.
var (
	line  = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? \S+$`)
	label = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
)

// exportsOf reads a text.
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

// Words of PromQL that our queries use; what is none of them is the name of a metric.
var (
	functions = []string{"absent", "avg", "count", "histogram_quantile", "increase", "label_replace", "label_values", "max", "min", "rate", "sum", "vector"}
	listed    = []string{"by", "without", "on", "ignoring", "group_left", "group_right"} // a list of labels follows
	operators = []string{"and", "or", "unless"}
	added     = []string{"instance", "job"} // the labels that the server adds to each series
	token     = regexp.MustCompile(`^(?:(\s+)|([a-zA-Z_][a-zA-Z0-9_]*)|("(?:[^"\\]|\\.)*")|(\[(?:\d+[smhd]|\$__rate_interval)\])|(\d+(?:\.\d+)?)|(==|!=|=~|!~|>=|<=|[-+*/<>=(){},]))`)
)

// tokens takes a query apart.
func tokens(query string) (list []string, err error) {
	for rest := query; rest != ""; {
		m := token.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("%q cannot be read", rest)
		}
		if m[1] == "" {
			list = append(list, m[0])
		}
		rest = rest[len(m[0]):]
	}
	return list, nil
}

// checker reads a query, and holds each name and label in it against what is exported.
type checker struct {
	all    exports
	tokens []string
	used   map[string]bool // the labels of the metrics in it
	lists  []string        // the labels that it joins and groups by
	names  int
}

// check says what is wrong with a query: it names what is not exported, selects by a label or a value that is not there, or
// groups by a label that none of its metrics has.
func (all exports) check(query string) error {
	list, err := tokens(query)
	if err != nil {
		return err
	}
	c := &checker{all: all, tokens: list, used: map[string]bool{}}
	for _, l := range added {
		c.used[l] = true
	}
	depth := 0
	for len(c.tokens) > 0 {
		word := c.next()
		switch {
		case word == "(":
			depth++
		case word == ")":
			depth--
		case slices.Contains(listed, word):
			err = c.list()
		case slices.Contains(functions, word) || slices.Contains(operators, word) || !regexp.MustCompile(`^[a-z]`).MatchString(word):
		default:
			err = c.metric(word)
		}
		if err != nil || depth < 0 {
			return fmt.Errorf("at %q: %w", word, err)
		}
	}
	for _, l := range c.lists {
		if !c.used[l] {
			return fmt.Errorf("groups by %s, which no metric in it has", l)
		}
	}
	if depth != 0 || c.names == 0 {
		return fmt.Errorf("%d brackets are open, and it has %d metrics", depth, c.names)
	}
	return nil
}

func (c *checker) next() string {
	if len(c.tokens) == 0 {
		return ""
	}
	word := c.tokens[0]
	c.tokens = c.tokens[1:]
	return word
}

// list reads the labels after by, on and their like.
func (c *checker) list() error {
	if open := c.next(); open != "(" {
		return fmt.Errorf("%q follows", open)
	}
	for {
		word := c.next()
		switch word {
		case ")":
			return nil
		case ",":
		case "":
			return fmt.Errorf("the list has no end")
		default:
			c.lists = append(c.lists, word)
		}
	}
}

// metric reads what selects series of a metric.
func (c *checker) metric(name string) error {
	labels, ok := c.all[name]
	if !ok {
		return fmt.Errorf("no metric is called %s", name)
	}
	c.names++
	for l := range labels {
		c.used[l] = true
	}
	if len(c.tokens) == 0 || c.tokens[0] != "{" {
		return nil
	}
	for c.next() != "}" {
		l, operator, value := c.next(), c.next(), strings.Trim(c.next(), `"`)
		if labels[l] == nil && !slices.Contains(added, l) {
			return fmt.Errorf("%s has no label %s", name, l)
		}
		if operator == "=" && labels[l] != nil && !labels[l][value] {
			return fmt.Errorf("the label %s of %s is never %q", l, name, value)
		}
		if operator == "" || operator == "}" {
			return fmt.Errorf("the selection of %s has no end", name)
		}
		if len(c.tokens) > 0 && c.tokens[0] != "," && c.tokens[0] != "}" {
			return fmt.Errorf("%q follows %s", c.tokens[0], value)
		}
	}
	return nil
}
