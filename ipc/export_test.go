package ipc

// StartClaimDaemon starts a daemon with one device to give, for the examples.
func StartClaimDaemon(path string) (stop func(), err error) {
	l, err := Listen(path, ListenOptions{})
	if err != nil {
		return nil, err
	}
	return serveOn(l, (&claimDaemon{}).handle), nil
}
