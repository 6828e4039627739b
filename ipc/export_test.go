package ipc

// This file lends the daemon of waiting_test.go to the examples in claim_example_test.go, which are in package
// ipc_test.

// StartClaimDaemon starts a daemon with one device to give, for the examples.
func StartClaimDaemon(path string) (stop func(), err error) {
	l, err := Listen(path, ListenOptions{})
	if err != nil {
		return nil, err
	}
	return serveOn(l, (&claimDaemon{}).handle), nil
}
