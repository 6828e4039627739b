package ipc

import "context"

// SetLimit changes limits of a process, a job or a device. The daemon answers a wish
// that is not permitted with StatusPermission, one that makes no sense with StatusRange.
func (c *Client) SetLimit(ctx context.Context, req LimitRequest) error {
	return Call(ctx, c, TypeLimit, &req, &Empty{})
}
