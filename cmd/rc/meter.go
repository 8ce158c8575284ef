package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"rcd/client"
)

const (
	// meterPace is how often the line of a copy changes on a terminal,
	// meterLines how often there is a new one elsewhere.
	meterPace  = 200 * time.Millisecond
	meterLines = 5 * time.Second
)

// meter shows how far a copy is: on a terminal in one line that changes,
// elsewhere by a line now and then. While it is open it is the app's stderr, so
// that other talk has lines of its own.
type meter struct {
	app      *app
	stderr   io.Writer
	terminal bool
	quiet    bool

	mu      sync.Mutex // guards what follows
	closed  bool
	shown   bool      // the line stands on the terminal
	last    time.Time // when there was something to see
	step    client.CopyStep
	begun   time.Time // when bytes began to move
	resumed int64
}

func newMeter(a *app, quiet bool) *meter {
	m := &meter{app: a, stderr: a.stderr, quiet: quiet, last: time.Now(), terminal: isTerminal(int(os.Stderr.Fd()))}
	a.stderr = m
	return m
}

// close takes the line away and gives stderr back. It may be called again.
func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clear()
	m.closed = true
	m.app.stderr = m.stderr
}

// clear takes the line away. The caller holds mu.
func (m *meter) clear() {
	if m.shown {
		fmt.Fprint(m.stderr, "\r\x1b[K")
		m.shown = false
	}
}

// Write writes talk, which is whole lines.
func (m *meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clear()
	return m.stderr.Write(p)
}

// see takes how far the copy is.
func (m *meter) see(p client.CopyProgress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.quiet {
		return
	}
	now := time.Now()
	if p.Step == client.CopyMoving && m.step != p.Step {
		m.begun, m.resumed = now, p.Done
	}
	changed := m.step != p.Step
	m.step = p.Step
	pace := meterLines
	if m.terminal {
		pace = meterPace
	}
	if now.Sub(m.last) < pace && !(changed && m.terminal) {
		return
	}
	m.last = now
	line := meterLine(p, p.Done-m.resumed, now.Sub(m.begun))
	if m.terminal {
		fmt.Fprintf(m.stderr, "\r\x1b[K%s", line)
		m.shown = true
		return
	}
	fmt.Fprintf(m.stderr, "rc: %s\n", line)
}

// meterLine says in one line how far a copy is: "copying 12.0 MB of 40.0 MB
// (30%), 8.1 MB/s, 3s left".
func meterLine(p client.CopyProgress, moved int64, took time.Duration) string {
	if p.Step != client.CopyMoving {
		return string(p.Step)
	}
	line := fmt.Sprintf("%s %s", p.Step, bytesText(p.Done))
	about := ""
	if p.About {
		about = "about "
	}
	if p.Total > 0 && p.Total >= p.Done {
		line += fmt.Sprintf(" of %s%s (%d%%)", about, bytesText(p.Total), p.Done*100/p.Total)
	}
	if took <= 0 || moved <= 0 {
		return line
	}
	rate := float64(moved) / took.Seconds()
	line += fmt.Sprintf(", %s/s", bytesText(int64(rate)))
	if left := p.Total - p.Done; p.Total > 0 && left >= 0 {
		line += fmt.Sprintf(", %s%s left", about, time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second))
	}
	return line
}

// bytesText prints a number of bytes in its largest unit: 512 B, 1.5 kB, 40.0 MB.
func bytesText(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	value := float64(n)
	for _, unit := range []string{"kB", "MB", "GB", "TB"} {
		if value /= 1000; value < 999.95 || unit == "TB" {
			return fmt.Sprintf("%.1f %s", value, unit)
		}
	}
	return ""
}
