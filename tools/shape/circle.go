package main

// graph says which file uses which others.
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

// reach returns all files that can be come to from a file.
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

// largestCircle returns the size of the largest group of files of which each uses each other, by whatever way.
func (g graph) largestCircle() (most int) {
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
