package bubble

import (
	"testing"
	"time"
)

// A controller that starts and hears of nobody knows only what its last
// snapshot knew. Each alone once removed the copies of all later jobs, a minute
// after its start, as those of jobs that are forgotten.
func TestAControllerAloneForgetsNoCopies(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := f.run("box:gpu0")
		f.box.Print(job, much("first"))
		f.box.Exit(job, 0)
		f.copied(3, 1)
		f.box.Stop()
		for _, n := range f.nodes {
			f.stop(n)
		}
		for _, n := range f.nodes {
			f.restart(n)
			time.Sleep(5 * time.Minute)
			f.stop(n)
		}
		for _, n := range f.nodes {
			f.restart(n)
		}
		f.leader()
		f.copied(3, 1)
		for _, n := range f.nodes {
			if got, took := f.logs(n, job); got != much("first") || took > 5*time.Second {
				t.Errorf("through %s: %d bytes after %v", n.ID, len(got), took)
			}
		}
	})
}
