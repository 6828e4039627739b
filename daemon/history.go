package daemon

import "github.com/gpuarb/gpuarb/ipc"

// events answers with the event history.
func (cl *client) events(ipc.Message) error {
	return refused(ipc.StatusUnsupported, "no event history is kept")
}
