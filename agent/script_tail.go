package agent

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// drainBound bounds what is read of a script's output after its end, in bytes:
// more than a pipe holds, and no more than that if a process which it left
// behind goes on writing.
const drainBound = 1 << 20

// tail keeps the end of what comes out of a pipe.
type tail struct {
	from *os.File
	keep int
	last []byte        // the reader's until done is closed
	done chan struct{} // closed by the reader
}

// newTail returns the tail and the end of the pipe that is to be written to,
// which is the caller's to close.
func newTail(keep int) (*tail, *os.File, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	if err := from.SetReadDeadline(time.Time{}); err != nil { // end relies on it
		_, _ = from.Close(), to.Close()
		return nil, nil, fmt.Errorf("set a deadline: %w", err)
	}
	t := &tail{from: from, keep: keep, done: make(chan struct{})}
	go t.read()
	return t, to, nil
}

func (t *tail) read() {
	defer close(t.done)
	for chunk := make([]byte, 4<<10); ; {
		n, err := t.from.Read(chunk)
		t.add(chunk[:n])
		if err != nil {
			return
		}
	}
}

func (t *tail) add(chunk []byte) {
	t.last = append(t.last, chunk...)
	if over := len(t.last) - t.keep; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
}

// end returns the last that was written, once. It does not wait for the end of
// the pipe, which whoever inherited it may keep open, but whatever has been
// written before is in it. The writer then loses its reader.
func (t *tail) end() string {
	_ = t.from.SetReadDeadline(time.Now())
	<-t.done
	_ = t.from.SetReadDeadline(time.Time{})
	if raw, err := t.from.SyscallConn(); err == nil {
		chunk := make([]byte, 4<<10)
		for total, n := 0, 1; n > 0 && total < drainBound; total += n {
			if err := raw.Read(func(fd uintptr) bool { n, _ = syscall.Read(int(fd), chunk); return true }); err != nil {
				break
			}
			n = max(0, n)
			t.add(chunk[:n])
		}
	}
	return plain(string(t.last))
}

// close waits for the reader.
func (t *tail) close() {
	_ = t.from.Close()
	<-t.done
}

// plain makes text of what a program has said: valid, and without what would
// move the cursor of whoever reads it.
func plain(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "")))
}
