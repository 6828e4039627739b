package arbiter

// Looked is how often a ticket was looked at so far.
func (a *Arbiter) Looked() uint64 { return a.looked }
