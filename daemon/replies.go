package daemon

// This file sends decisions and errors as replies. The files that answer requests use it.

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/ipc"
)

// refuse answers a request with an error.
func (cl *client) refuse(h ipc.Header, err error) error {
	status := statusOf(err)
	if !status.IsError() {
		status = ipc.StatusPermission // a policy refusal whose reply has no field for the reason
	}
	return cl.conn.ReplyError(h, &ipc.ProtocolError{Status: status, Text: err.Error()})
}

// waiting reports whether a request of this connection waits for its reply.
func (cl *client) waiting() bool { return cl.waits != nil && !cl.waits.over.Load() }

// refusalText returns the line that a refused program must print; "": it prints none. There is a line for the first
// refusal, and for each refusal that is caused by the program's own threads or by the full queue.
func (cl *client) refusalText(out arbiter.Result) (text ipc.Text) {
	if out.First || out.Reason == arbiter.ReasonThreads || out.Reason == arbiter.ReasonCrowded {
		text = withProgramName(cl.s.caller, out.Explain)
	}
	return text
}

// patienceMillis returns for how long a client may ask again, in the encoding of replies with StatusCrowded.
func patienceMillis(patience time.Duration) uint64 {
	if patience < 0 {
		return ipc.NoLimit
	}
	return uint64(patience.Milliseconds())
}

// reply sends a decision with its body. If the status is an error, it sends an error reply, which has no body.
func reply[T ipc.Body](cl *client, h ipc.Header, out arbiter.Result, rep *T) error {
	status := ipc.StatusOK
	if !out.Granted {
		status = statusOfReason(out.Reason)
	}
	if status.IsError() {
		return cl.conn.ReplyError(h, &ipc.ProtocolError{Status: status, Text: out.Explain})
	}
	return ipc.Reply(cl.conn, h, status, rep, -1)
}

// streaming reports whether a request for events of this connection still runs.
func (cl *client) streaming() bool { return cl.feed != nil && !cl.feed.over.Load() }

// endStream ends the event stream, if there is one, and waits until it has ended.
func (cl *client) endStream() {
	if cl.feed != nil {
		cl.feed.cancel()
		<-cl.feed.ended
		cl.feed = nil
	}
}
