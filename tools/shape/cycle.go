package main

// This file finds files that use each other in a cycle. golang.go and clang.go build the graph.

// graph records which file uses which other files.
type graph map[string]map[string]bool

func (g graph) add(from, to string) {
	if from == to {
		return
	}
	if g[from] == nil {
		g[from] = map[string]bool{}
	}
	g[from][to] = true
}

// reach returns all files that can be reached from a file.
func (g graph) reach(from string) map[string]bool {
	seen := map[string]bool{}
	for todo := []string{from}; len(todo) > 0; {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for to := range g[next] {
			if !seen[to] {
				seen[to] = true
				todo = append(todo, to)
			}
		}
	}
	return seen
}

// largestCycle returns the size of the largest group of files in which each file uses every other,
// directly or through others.
func (g graph) largestCycle() (most int) {
	reach := map[string]map[string]bool{}
	for from := range g {
		reach[from] = g.reach(from)
	}
	for from, to := range reach {
		size := 0
		for other := range to {
			if reach[other][from] {
				size++
			}
		}
		most = max(most, size)
	}
	return most
}
