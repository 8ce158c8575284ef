package relay

import "context"

// HopOptions are what a Hop may be told beyond the necessary.
type HopOptions struct {
	Window int // bytes held between the two links; 0 means DefaultWindow
	Send   SendOptions
	Follow FollowOptions
}

// Hop is a relaying node in the middle: it follows the stream from offset from
// through dial and sends it on conn. While the far link is away, for however
// long, the near reader gets keepalives and keeps its place; while the near
// reader is slow, the far side is held back once the window is full.
//
// It owns conn and returns like Send. When the far side says that the stream
// cannot be had, the reader is told the same.
func Hop(ctx context.Context, conn Conn, dial DialFunc, from int64, opts HopOptions) error {
	conduit := NewConduit(opts.Window)
	within, cancel := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		if _, _, err := Follow(within, dial, from, conduit, opts.Follow); err != nil {
			conduit.Fail(err)
		}
	}()
	err := Send(ctx, conn, from, conduit, opts.Send)
	cancel()
	<-followed
	return err
}
