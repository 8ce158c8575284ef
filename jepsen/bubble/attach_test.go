package bubble

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"rcd/client"
	"rcd/model"
)

func TestATerminalSurvivesALeaderThatIsCutOffAndALinkThatIs(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.runAs("box:gpu0", "tty")
		screen, stop := &reader{done: make(chan error, 1)}, make(chan struct{})
		watcher := &reader{done: make(chan error, 1)}
		var typed strings.Builder
		keys := 0
		typedAll := make(chan struct{})
		in := func(ctx context.Context, p []byte) (int, error) {
			select {
			case <-stop:
				close(typedAll)
				return 0, io.EOF
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
			keys++
			n := copy(p, fmt.Sprintf("%d,", keys))
			typed.Write(p[:n])
			return n, nil
		}
		attach := func(r *reader, o client.AttachOptions) {
			o.Stdout, o.Submitter = r, "ann"
			go func() {
				_, _, err := f.rc.Attach(context.Background(), model.JobID(job), o)
				r.done <- err
			}()
		}
		attach(screen, client.AttachOptions{In: in})
		attach(watcher, client.AttachOptions{})
		goesOn := func(what string) {
			before := len(screen.String())
			f.eventually(what, func() bool { return len(screen.String()) > before })
		}
		goesOn("keys that come back")
		old := f.leader()
		f.net.Isolate(old.ID)
		f.eventually("another leader", func() bool {
			for _, n := range f.nodes {
				if n != old && n.Controller.Leader().Self {
					return true
				}
			}
			return false
		})
		goesOn("keys through the new leader")
		f.net.Heal(old.ID)
		goesOn("keys after the old one is back")
		f.net.Isolate("box")
		time.Sleep(20 * time.Second)
		f.net.Heal("box")
		goesOn("keys after the host is back")
		close(stop)
		<-typedAll // a key may have been on its way
		f.eventually("all that was typed", func() bool { return len(screen.String()) >= typed.Len() })
		f.box.Exit(job, 0)
		f.whole(screen, typed.String())
		f.whole(watcher, typed.String())
	})
}
