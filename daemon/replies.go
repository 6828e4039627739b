package daemon

// This file has how the requests of a connection are answered with decisions and errors. The files below serve.go that answer requests use it.

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/ipc"
)

// refuse answers a request with an error.
func (cl *client) refuse(h ipc.Header, err error) error {
	status := statusOf(err)
	if !status.IsError() {
		status = ipc.StatusPermission // a refusal by policy where the reply has no room for the reason
	}
	return cl.conn.ReplyError(h, &ipc.ProtocolError{Status: status, Text: err.Error()})
}

// waiting says whether a request of this connection waits for its reply.
func (cl *client) waiting() bool { return cl.waits != nil && !cl.waits.over.Load() }

// told returns the line that a refused program must print: for its first refusal, and for each refusal whose cause is not memory that other programs
// hold, but the program's own threads or the full queue. "": it prints none.
func (cl *client) refusalText(out arbiter.Result) (text ipc.Text) {
	if out.First || out.Reason == arbiter.ReasonThreads || out.Reason == arbiter.ReasonCrowded {
		text = addressed(cl.s.caller, out.Explain)
	}
	return text
}

// patienceMillis returns how long a client may ask again, in the encoding of replies with StatusCrowded.
func patienceMillis(patience time.Duration) uint64 {
	if patience < 0 {
		return ipc.NoLimit
	}
	return uint64(patience.Milliseconds())
}

// reply sends a decision with its body; if the status is an error, which has no body, as an error.
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

// streaming says whether a request for events of this connection goes on.
func (cl *client) streaming() bool { return cl.feed != nil && !cl.feed.over.Load() }

// endStream ends the stream, if there is one, and waits until it has ended.
func (cl *client) endStream() {
	if cl.feed != nil {
		cl.feed.cancel()
		<-cl.feed.ended
		cl.feed = nil
	}
}
