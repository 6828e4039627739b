package arbiter

// Looked is how often a ticket was looked at so far.
func (a *Arbiter) Looked() uint64 { return a.looked }

// SearchInParts has every search for circles made beside the lock, on a copy of one ticket at a time.
func (a *Arbiter) SearchInParts() { a.atOnce = 0 }
