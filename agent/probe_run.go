package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"rcd/agent/probe"
	"rcd/agent/proc"
)

const (
	// probeTail is how much of a probe's stderr is logged, in bytes.
	probeTail = 200
	// probeKill bounds the end of a probe: SIGKILL, which a process that hangs in
	// the kernel does not see.
	probeKill = 8 * time.Second
	// probeDrain is how long output may take to arrive once everybody who could
	// write it has ended. Somebody who has left the session may hold the pipe.
	probeDrain = time.Second
)

// runProbe is probe.Dropins.Run: a session of its own, all of which has ended
// when it returns, unless Left says otherwise.
func runProbe(ctx context.Context, path string, limit int) probe.Run {
	out, outEnd, err := os.Pipe()
	if err != nil {
		return probe.Run{Err: fmt.Errorf("run it: %w", err)}
	}
	defer out.Close()
	problem, problemEnd, err := os.Pipe()
	if err != nil {
		outEnd.Close()
		return probe.Run{Err: fmt.Errorf("run it: %w", err)}
	}
	defer problem.Close()
	running, err := launch(ctx, path, probeEnvironment(), outEnd, problemEnd)
	outEnd.Close()
	problemEnd.Close()
	if err != nil {
		return probe.Run{Err: fmt.Errorf("run it: %w", err)}
	}
	p := &probeProcess{program: running, tree: proc.Target{Root: running.root}}
	printed, tail := make(chan []byte, 1), make(chan string, 1)
	full := make(chan struct{})
	go func() {
		data, _ := io.ReadAll(io.LimitReader(out, int64(limit)+1)) // what a deadline ends counts as it is
		if len(data) > limit {
			close(full)
		}
		printed <- data
	}()
	go func() { tail <- tailOf(problem, probeTail) }()

	var failed error
	select {
	case <-p.exited:
	case <-full:
		failed = fmt.Errorf("it prints more than %d bytes", limit)
	case <-ctx.Done():
		failed = context.Cause(ctx)
	}
	run := probe.Run{Left: p.end()}
	deadline := time.Now().Add(probeDrain)
	_, _ = out.SetReadDeadline(deadline), problem.SetReadDeadline(deadline)
	run.Output, run.Err = <-printed, failed
	said := <-tail
	if run.Err == nil && p.err != nil {
		run.Err = errors.New(p.err.Error())
		if said != "" {
			run.Err = fmt.Errorf("%w: %s", run.Err, said)
		}
	}
	if run.Left != nil {
		run.Err = errors.Join(run.Err, fmt.Errorf("process %d or what it started cannot be ended", p.root.PID))
	}
	return run
}

// probeProcess is a probe that runs.
type probeProcess struct {
	*program
	tree proc.Target
}

// end kills what is left of the tree. nil if it was seen empty, else what tells
// whether somebody is still there.
func (p *probeProcess) end() (left func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), probeKill)
	defer cancel()
	found, err := proc.KillTree(ctx, p.tree, 0)
	if err == nil && len(found) == 0 {
		select {
		case <-p.exited:
			return nil
		case <-ctx.Done():
		}
	}
	return func() bool {
		select {
		case <-p.exited:
		default:
			return true
		}
		for _, f := range found { // one that hangs in its exit may have lost its session
			if proc.Alive(f.ID) {
				return true
			}
		}
		found, err := proc.Find(p.tree)
		return err != nil || len(found) > 0
	}
}

// probeEnvironment is the agent's own, without what is rc's: credentials, and
// the name of a job that the agent itself may run in.
func probeEnvironment() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "RC_") && !strings.HasPrefix(entry, "RCD_") {
			env = append(env, entry)
		}
	}
	return env
}

// tailOf reads to the end and returns the last bytes, on one line.
func tailOf(r io.Reader, limit int) string {
	var tail []byte
	buffer := make([]byte, 4096)
	for {
		n, err := r.Read(buffer)
		tail = append(tail, buffer[:n]...)
		tail = tail[max(0, len(tail)-limit):]
		if err != nil {
			return strings.Join(strings.Fields(strings.ToValidUTF8(string(tail), "")), " ")
		}
	}
}
