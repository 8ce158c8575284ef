package bubble

import (
	"context"
	"testing"
	"time"

	"rcd/client"
	"rcd/model"
)

// silence is longer than any timeout between a job and its readers.
const silence = 20 * time.Minute

// TestAJobSilentForMinutesEndsForAllWhoFollowIt: nothing keeps a reader's
// links alive but the system itself, and the leader is lost meanwhile.
func TestAJobSilentForMinutesEndsForAllWhoFollowIt(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		plain, onTTY := f.run("box:gpu0"), f.runAs("box:gpu1", "tty")
		logs := f.follow(plain)
		run, attach := &reader{done: make(chan error, 1)}, &reader{done: make(chan error, 1)}
		codes := make(chan int, 1)
		go func() { // as rc run does
			_, end, err := f.rc.Stream(context.Background(), model.JobID(plain), client.StreamOptions{Stdout: run})
			job, waited := f.rc.WaitTerminal(context.Background(), model.JobID(plain), 0)
			switch {
			case err == nil:
				err = waited
			case !end.Complete:
				t.Errorf("the stream ended with %+v", end)
			}
			if err == nil && job.ExitCode != nil {
				codes <- *job.ExitCode
			}
			close(codes)
			run.done <- err
		}()
		go func() {
			_, end, err := f.rc.Attach(context.Background(), model.JobID(onTTY), client.AttachOptions{Stdout: attach})
			if err == nil && !end.Complete {
				t.Errorf("attach ended with %+v", end)
			}
			attach.done <- err
		}()
		f.box.Print(plain, "first\n")
		f.box.Print(onTTY, "first\r\n")
		f.eventually("the first line everywhere", func() bool {
			return run.String() == "first\n" && logs.String() == "first\n" && attach.String() == "first\r\n"
		})
		time.Sleep(silence / 2)
		old := f.leader()
		f.net.Isolate(old.ID)
		time.Sleep(time.Minute)
		f.net.Heal(old.ID)
		time.Sleep(silence / 2)
		for _, r := range []*reader{run, logs, attach} {
			select {
			case err := <-r.done:
				t.Fatalf("a reader left in the silence: %v", err)
			default:
			}
		}
		ended := time.Now()
		f.box.Print(plain, "last\n")
		f.box.Exit(plain, 7)
		f.box.Print(onTTY, "last\r\n")
		f.box.Exit(onTTY, 6)
		f.whole(run, "first\nlast\n")
		f.whole(logs, "first\nlast\n")
		f.whole(attach, "first\r\nlast\r\n")
		if code, told := <-codes; code != 7 || !told {
			t.Errorf("exit code %d (told: %v), want 7", code, told)
		}
		if job := f.job(onTTY); job.ExitCode == nil || *job.ExitCode != 6 {
			t.Errorf("the job on a terminal has ended with %+v", job)
		}
		if late := time.Since(ended); late > 10*time.Second {
			t.Errorf("the end was told %v late", late)
		}
	})
}
