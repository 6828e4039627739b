package daemon

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
)

// This file checks that the table of handlers in serve.go is complete. Package ipc's list of message types gives the
// expected handlers.

// TestEveryTypeIsHandled checks that every type of message that ipc accepts has a handler.
func TestEveryTypeIsHandled(t *testing.T) {
	for typ := ipc.Type(0); typ < 1<<10; typ++ {
		known := !strings.HasPrefix(typ.String(), "type ")
		if handled := int(typ) < len(handlers) && handlers[typ].run != nil; handled != known {
			t.Errorf("%v: known %t, handled %t", typ, known, handled)
		}
	}
}
