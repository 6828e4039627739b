package arbiter

import "github.com/gpuarb/gpuarb/accounting"

// HostMax returns how many bytes of pinned host memory the session's process may hold,
// accounting.Max for no limit. The arbiter keeps no count of them: the client keeps to it.
func (a *Arbiter) HostMax(id SessionID) accounting.Bytes {
	if s := a.sessions[id]; s != nil && s.job.rule.hostMax != nil {
		return *s.job.rule.hostMax
	}
	return accounting.Max
}
