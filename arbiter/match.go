package arbiter

// Match picks processes. Every field that is set must match; an empty Match
// matches everybody. Fields are globs: * is any run of characters (slashes too), ?
// is one, [a-z] and [!a-z] are classes, a backslash takes the next character as it is.
type Match struct {
	User      string // name or number
	Group     string // any group of the process, by name
	Exe       string // path; a pattern without a slash is matched against the last element
	Command   string // the whole command line
	Cgroup    string
	Unit      string
	Container string
}
