package top

// This file has the page of help. screen.go calls it; keys.go handles the keys.

// helpLines returns the page that explains the keys.
func helpLines(width int) []string {
	var lines []string
	for _, text := range []string{
		paint(bold, "Move"),
		"  up, down, page up, page down, home, end, wheel: select a row, or scroll a page",
		"  enter, d, a second click: details of the row: its limits, its place in the queue, why it waits, who holds what it waits for",
		"  esc: back; in the table, clear the filter      q: back, or quit      ctrl+c: quit",
		"",
		paint(bold, "See"),
		"  /: filter by user, command, job, state or PID      u: only your own rows",
		"  t: as a tree of jobs, or as a table      C: compact      m: the mouse here, or the terminal's own",
		"  s, S: sort by the next or the last column      r: reverse the order      a click on a column: sort by it",
		"",
		paint(bold, "Change (asks for confirmation)"),
		"  l: a limit of the process, or of the job: memory.max=2G, memory.min=1G, streams.max=8",
		"  c: cancel the ticket that it waits with      k: send a signal",
		"  f: ask the job to give its memory back, or let a suspended job take it again",
		"",
		paint(bold, "Read"),
		"  used: allocated by programs. kept: not in use and not free (the rest of memory.min, idle credit, what the configuration sets aside).",
		"  overhead: contexts, code and rounding of arbitrated programs. unmanaged: taken by programs without gpuarb. free: can be granted to a new program now. queued: free, but kept for requests that wait.",
		"  The graph shows how much was taken, by anybody, in the last 5 minutes. Rows of other users are dimmed.",
		"  In the state, #2 is the second place in the queue. WANTS: what a request asks for. UTIL: how busy the process keeps the device. IDLE: time since its last call or use.",
	} {
		lines = append(lines, wrap(text, width)...)
	}
	return lines
}
