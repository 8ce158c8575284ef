package chaos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func copySize() int64 {
	if *long {
		return 500_000_000
	}
	return 40_000_000
}

// bulk makes a file of bytes that no two files share, and returns its checksum.
func bulk(t *testing.T, path string, size int64) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	var seed [32]byte
	copy(seed[:], path)
	if _, err := io.CopyN(io.MultiWriter(f, sum), rand.NewChaCha8(seed), size); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// copying is an rc cp that runs.
type copying struct {
	*exec.Cmd
	t              *testing.T
	into           string // the directory that it writes to
	stdout, stderr *bytes.Buffer
	done           chan error
}

func (c *Cluster) copying(ctx context.Context, t *testing.T, into string, args ...string) *copying {
	t.Helper()
	cmd, stdout, stderr := c.RC(ctx, append([]string{"cp", "-o", "json"}, args...)...)
	p := &copying{Cmd: cmd, t: t, into: into, stdout: stdout, stderr: stderr, done: make(chan error, 1)}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- cmd.Wait() }()
	return p
}

// stopAt lets the copy run until so much has arrived, and stops rc there. What
// it does next falls into the middle of the copy.
func (p *copying) stopAt(size int64) int64 {
	p.t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if at := p.arrived(); at >= size {
			_ = p.Process.Signal(syscall.SIGSTOP)
			return at
		}
		select {
		case err := <-p.done:
			p.t.Fatalf("the copy has ended before: %v\n%s", err, p.stderr)
		default:
		}
		if time.Since(begun) > 2*time.Minute {
			p.t.Fatalf("%d bytes have not arrived", size)
		}
	}
}

func (p *copying) arrived() int64 {
	parts, _ := filepath.Glob(filepath.Join(p.into, ".*.rc-cp-*.part"))
	for _, part := range parts {
		if info, err := os.Stat(part); err == nil {
			return info.Size()
		}
	}
	return 0
}

// copied is what rc cp -o json says.
type copied struct {
	Bytes       int64   `json:"bytes"`
	ResumedFrom int64   `json:"resumed_from"`
	Seconds     float64 `json:"seconds"`
	SHA256      string  `json:"sha256"`
	Hold        string  `json:"hold"`
}

func (p *copying) result() copied {
	p.t.Helper()
	select {
	case err := <-p.done:
		var r copied
		if err != nil || json.Unmarshal(p.stdout.Bytes(), &r) != nil {
			p.t.Fatalf("rc cp: %v\n%s%s", err, p.stdout, p.stderr)
		}
		return r
	case <-time.After(5 * time.Minute):
		p.t.Fatalf("rc cp does not end\n%s", p.stderr)
		return copied{}
	}
}

func TestACopyEachWayArrivesWholeThroughTwoKillsOfTheLeader(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	here, there, back := t.TempDir(), t.TempDir(), t.TempDir()
	size := copySize()
	want := bulk(t, filepath.Join(here, "data"), size)
	for _, way := range []struct{ into, from, to string }{
		{there, filepath.Join(here, "data"), "box:gpu0:" + there + "/"},
		{back, "box:gpu0:" + there + "/data", back},
	} {
		p := c.copying(ctx, t, way.into, way.from, way.to)
		for _, percent := range []int64{20, 55} {
			if at := p.stopAt(size * percent / 100); at >= size {
				t.Fatalf("all %d bytes had arrived when the leader was to be killed", at)
			}
			old := c.Leader()
			old.End(syscall.SIGKILL)
			if err := p.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if percent == 20 {
				p.stopAt(size * 30 / 100) // through the leader that came then
			}
			old.Start(t)
			c.WaitVoters()
			_ = p.Process.Signal(syscall.SIGCONT)
		}
		r := p.result()
		if r.Bytes != size || r.SHA256 != want || r.ResumedFrom != 0 || sumOf(t, filepath.Join(way.into, "data")) != want {
			t.Errorf("to %s: %+v, want %d bytes with %s", way.to, r, size, want)
		}
		if said := p.stderr.String(); !strings.Contains(said, "resumed") {
			t.Errorf("rc says nothing of the kills: %s", said)
		}
		if left := p.arrived(); left != 0 {
			t.Errorf("%d bytes are left beside the destination", left)
		}
		t.Logf("to %s: %.1f s through two kills", way.to, r.Seconds)
	}
}

func TestACopyThatWasKilledGoesOnWhereItWas(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	here, there, back := t.TempDir(), t.TempDir(), t.TempDir()
	size := copySize()
	tree := filepath.Join(here, "tree")
	if err := os.MkdirAll(filepath.Join(tree, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := bulk(t, filepath.Join(here, "data"), size)
	for i := range 20 {
		bulk(t, filepath.Join(tree, "sub", fmt.Sprint(i)), size/20)
	}
	for _, way := range []struct{ into, from, to string }{
		{there, filepath.Join(here, "data"), "box:gpu0:" + there + "/"},
		{back, "box:gpu0:" + there + "/data", back},
		{there, tree, "box:gpu0:" + there + "/tree"},
		{back, "box:gpu0:" + there + "/tree", back},
	} {
		p := c.copying(ctx, t, way.into, way.from, way.to)
		p.stopAt(size * 6 / 10)
		_ = p.Process.Kill()
		<-p.done
		p = c.copying(ctx, t, way.into, way.from, way.to)
		r := p.result()
		if r.Bytes < size || r.ResumedFrom >= r.Bytes || 10*(r.Bytes-r.ResumedFrom) >= 7*r.Bytes {
			t.Errorf("%s to %s: %d bytes of %d have travelled again\n%s", way.from, way.to, r.Bytes-r.ResumedFrom, r.Bytes, p.stderr)
		}
		whole := c.copying(ctx, t, way.into, way.from, way.to).result()
		if whole.ResumedFrom != 0 || whole.SHA256 != r.SHA256 {
			t.Errorf("once more: %+v", whole)
		}
		t.Logf("%s to %s: %.0f MB/s (%.1f s)", way.from, way.to, float64(whole.Bytes)/1e6/whole.Seconds, whole.Seconds)
	}
	if got := sumOf(t, filepath.Join(back, "data")); got != want {
		t.Errorf("the file is %s, was %s", got, want)
	}
	if out, err := exec.Command("diff", "-r", tree, filepath.Join(back, "tree")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestCtrlCOfACopyEndsItsJobAndLeavesWhatItSays(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	here, there, back := t.TempDir(), t.TempDir(), t.TempDir()
	size := copySize()
	want := bulk(t, filepath.Join(here, "data"), size)
	for _, way := range []struct{ into, from, to string }{
		{there, filepath.Join(here, "data"), "box:gpu0:" + there + "/data"},
		{back, "box:gpu0:" + there + "/data", back + "/data"},
	} {
		if err := os.WriteFile(filepath.Join(way.into, "data"), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		p := c.copying(ctx, t, way.into, way.from, way.to)
		p.stopAt(size / 2)
		_ = p.Process.Signal(syscall.SIGINT)
		_ = p.Process.Signal(syscall.SIGCONT)
		<-p.done
		said := p.stderr.String()
		if code := p.ProcessState.ExitCode(); code != 130 || !strings.Contains(said, `"message":"interrupted; job j-`) || !strings.Contains(said, "is ended") || !strings.Contains(said, ".data.rc-cp-") {
			t.Fatalf("exit code %d, %s", code, said)
		}
		if text, _ := os.ReadFile(filepath.Join(way.into, "data")); string(text) != "old" {
			t.Errorf("what was there before is now %d bytes", len(text))
		}
		if jobs := c.MustRC("ps", "-o", "name"); jobs != "" {
			t.Errorf("jobs are left: %s", jobs)
		}
		if at := p.arrived(); at < size/2 || at >= size {
			t.Errorf("%d bytes are kept", at)
		}
		if r := c.copying(ctx, t, way.into, way.from, way.to).result(); r.ResumedFrom < size/2 || sumOf(t, filepath.Join(way.into, "data")) != want {
			t.Errorf("%+v", r)
		}
	}
}

func TestACopyDoesNotWaitForADeviceOfSomebodyElse(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	hold := strings.TrimSpace(c.MustRC("hold", "box:gpu0", "--ttl", "10m", "--reason", "look", "--as", "bob", "--detach"))
	c.MustRC("wait", hold, "--for", "scheduled", "--timeout", "1m")
	data := filepath.Join(t.TempDir(), "data")
	bulk(t, data, 1000)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd, _, stderr := c.RC(ctx, "cp", data, "box:gpu0:"+t.TempDir()+"/")
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != 75 || !strings.Contains(stderr.String(), "box:gpu0 is held by bob with hold "+hold) {
		t.Errorf("exit code %d, %s", cmd.ProcessState.ExitCode(), stderr)
	}
}

func TestACopyToADeviceThatYouHoldRunsInsideTheHold(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 1})
	hold := strings.TrimSpace(c.MustRC("hold", "box:gpu0", "--ttl", "10m", "--reason", "look", "--detach"))
	c.MustRC("wait", hold, "--for", "scheduled", "--timeout", "1m")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	here, there, back := t.TempDir(), t.TempDir(), t.TempDir()
	want := bulk(t, filepath.Join(here, "data"), 5_000_000)
	for _, way := range [][3]string{{there, here + "/data", "box:gpu0:" + there + "/"}, {back, "box:gpu0:" + there + "/data", back}} {
		if r := c.copying(ctx, t, way[0], way[1], way[2]).result(); r.Hold != hold || sumOf(t, filepath.Join(way[0], "data")) != want {
			t.Errorf("%+v", r)
		}
	}
	if jobs := c.MustRC("ps", "-o", "name"); strings.TrimSpace(jobs) != hold {
		t.Errorf("there is %q, and the hold is %s", jobs, hold)
	}
}
