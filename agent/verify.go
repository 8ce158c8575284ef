package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"rcd/wire"
)

// verifyTail is how much of a script's last words goes into the reason, in
// characters.
const verifyTail = 200

// verifyFailed begins what a script finds wrong. Webhooks and people know it by
// that.
const verifyFailed = "verify failed: "

// verifier has the executables of a directory look at a device after each job.
// What cannot be looked at counts as not fit.
type verifier struct {
	agent *agent

	mu      sync.Mutex      // guards what follows
	skipped map[string]bool // what the log has named as not executable
}

// check returns the verifier as a check. A directory that is missing or empty
// is off for as long as it is.
func (v *verifier) check() check {
	return check{name: "verify scripts", lease: true, applies: v.applies, look: v.look}
}

func (v *verifier) settings() Verify { return v.agent.settings().Verify }

func (v *verifier) applies() bool {
	dir := v.settings().Dir
	if dir == "" {
		return false
	}
	entries, err := os.ReadDir(dir)
	return len(entries) > 0 || err != nil && !errors.Is(err, os.ErrNotExist)
}

// look makes a pass for each device of a job, side by side.
func (v *verifier) look(ctx context.Context, j *job, _ wire.Outcome) finding {
	who := v.agent.tenantOf(j)
	found := make([]string, len(j.devices))
	var wait sync.WaitGroup
	for i, device := range j.devices {
		wait.Go(func() {
			on := ""
			if len(j.devices) > 1 {
				on = device + ": "
			}
			for _, problem := range v.pass(ctx, device, who) {
				found[i] = joined(found[i], verifyFailed+on+problem)
			}
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return finding{} // what was ended has found nothing
	}
	texts := map[string]string{}
	for i, text := range found {
		if text != "" {
			texts[j.devices[i]] = text
		}
	}
	return finding{fault: v.agent.takeOut(ctx, j, texts)}
}

// pass runs every executable for a device, in the order of their names, and
// returns what is wrong.
func (v *verifier) pass(ctx context.Context, device string, who tenant) (problems []string) {
	now := v.settings()
	ctx, cancel := context.WithTimeoutCause(ctx, now.Budget, fmt.Errorf("the %v for all scripts are over", now.Budget))
	defer cancel()
	entries, err := os.ReadDir(now.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return []string{now.Dir + ": " + cause(err)}
	}
	skipped := map[string]bool{}
	for _, e := range entries {
		path := filepath.Join(now.Dir, e.Name())
		info, err := os.Stat(path)
		switch {
		case err != nil:
			problems = append(problems, e.Name()+": "+cause(err))
			continue
		case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
			skipped[path] = true
			continue
		}
		end := v.agent.scripts.run(ctx, script{
			path: path, event: eventVerify, device: device, tenant: who, timeout: now.Timeout, keep: verifyTail * 4,
		})
		if end.failure == "" {
			continue
		}
		end.tail = lastRunes(end.tail, verifyTail)
		problems = append(problems, e.Name()+": "+end.said(maxReason))
	}
	v.skip(skipped)
	return problems
}

// skip names what was left out, once for as long as it is there.
func (v *verifier) skip(skipped map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for path := range skipped {
		if !v.skipped[path] {
			v.agent.log.Warn("not an executable file, so no verify script; make it one (chmod +x) or remove it", "path", path)
		}
	}
	v.skipped = skipped
}

// cause is an error of the file system without the path, which stands before
// it.
func cause(err error) string {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Op + ": " + at.Err.Error()
	}
	return err.Error()
}

func lastRunes(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return strings.TrimSpace(string(r[len(r)-n:]))
	}
	return s
}
