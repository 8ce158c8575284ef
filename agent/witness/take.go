package witness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrDouble says that a device is in use by another lease. Nothing is held
// then, and the log of the device says it.
var ErrDouble = errors.New("the device is used twice")

// Names in a place: DEVICE.lock, DEVICE.log, and DEVICE.log.1 for what stood in
// the log before.
const (
	lockSuffix = ".lock"
	logSuffix  = ".log"
	oldSuffix  = ".log.1"
)

const (
	// logBound is how long a log grows before it takes the place of the one
	// before: some ten thousand leases.
	logBound = 1 << 20
	// firstFD is above the numbers that scripts choose for themselves: a shell
	// that says `exec 3>file` would close the lock. lowFD is above the digits,
	// for a process that may have few.
	firstFD = 200
	lowFD   = 10
)

// The words of a log. Texts are on disk.
const (
	wordBegin  = "begin"  // a lease has the device
	wordEnd    = "end"    // it has given it back, its processes gone
	wordGone   = "gone"   // by the next lease: the one before ended without a word, and nothing of it is left
	wordDouble = "DOUBLE" // a lease found another one's processes there
	wordInside = "inside" // a job has joined the lease that has the device
	wordLeft   = "left"   // it has left it, its processes gone
)

// Place says where the simulated devices of a job are witnessed. It is part of
// the job's spec on disk.
type Place struct {
	Dir     string   `cbor:"1,keyasint"` // absolute; made if it is missing
	Devices []string `cbor:"2,keyasint"` // names on the host
	// Inside: the job joins a lease that has the devices already.
	Inside bool `cbor:"3,keyasint,omitempty"`
}

// Holder is who uses a device.
type Holder struct {
	Lease uint64
	Job   string // an ID: no space, no quote
}

func (h Holder) String() string {
	return fmt.Sprintf("lease=%d job=%s pid=%d", h.Lease, h.Job, os.Getpid())
}

// Hold is the use of devices by one lease, or by a job inside it.
type Hold struct {
	place  Place
	holder Holder
	fds    []int
}

// Check refuses a place that cannot be meant.
func (p Place) Check() error {
	if !filepath.IsAbs(p.Dir) {
		return fmt.Errorf("witness directory %q is not absolute", p.Dir)
	}
	for _, d := range p.Devices {
		if d == "" || strings.ContainsAny(d, "/ \n\x00") {
			return fmt.Errorf("witnessed device %q has no name for a file", d)
		}
	}
	return nil
}

// Take begins the use of all of the devices, or of none. It does not wait: an
// error that is ErrDouble names who has a device, others are the disk's. Every
// process that is started from here on inherits the hold.
func (p Place) Take(holder Holder) (*Hold, error) {
	if p.Inside {
		return p.join(holder)
	}
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make witness directory: %w", err)
	}
	p.Devices = slices.Sorted(slices.Values(p.Devices)) // in the same order, of two only one is refused
	h := &Hold{place: p, holder: holder}
	before := make([]string, len(p.Devices)) // who had each device last and has not ended, in the order of fds
	var refused error
	for i, d := range p.Devices {
		fd, content, err := lock(p.file(d, lockSuffix))
		if errors.Is(err, unix.EWOULDBLOCK) {
			// The next device may be in use, too, and its log should say so.
			refused = errors.Join(refused, p.twice(d, holder, content))
			continue
		}
		if err != nil {
			refused = errors.Join(refused, err)
			break
		}
		h.fds, before[i] = append(h.fds, fd), content
		refused = errors.Join(refused, p.empty(d, holder))
	}
	if refused != nil {
		h.LetGo()
		return nil, refused
	}
	for i, d := range p.Devices {
		err := p.turn(d)
		if err == nil && before[i] != "" {
			err = p.say(d, wordGone, before[i])
		}
		// First the lock, then the log: a beginning always has somebody to
		// tell its end.
		if err == nil {
			err = write(h.fds[i], holder.String())
		}
		if err == nil {
			err = p.say(d, wordBegin, holder.String())
		}
		if err != nil {
			// What is said already stands: the next lease says that we are gone.
			h.LetGo()
			return nil, err
		}
	}
	return h, nil
}

// End says that nothing of the lease is left on the devices, and lets go.
func (h *Hold) End() error {
	var errs []error
	for i, d := range h.place.Devices {
		word := wordEnd
		if h.place.Inside {
			word = wordLeft
		}
		err := h.place.say(d, word, h.holder.String())
		if err == nil {
			err = write(h.fds[i], "")
		}
		if err == nil && h.place.Inside {
			err = os.Remove(h.place.seat(d, h.holder.Job))
		}
		errs = append(errs, err)
	}
	h.LetGo()
	return errors.Join(errs...)
}

// LetGo gives up this process's part of the hold without a word. Those who
// inherited it keep it.
func (h *Hold) LetGo() {
	for _, fd := range h.fds {
		_ = unix.Close(fd) // never LOCK_UN, which would take the lock from all
	}
	h.fds = nil
}

func (p Place) file(device, suffix string) string { return filepath.Join(p.Dir, device+suffix) }

// lock opens and locks a file, to be inherited, and returns what it says. It
// says who has it if the error is EWOULDBLOCK.
func lock(path string) (fd int, content string, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return -1, "", fmt.Errorf("open witness: %w", err)
	}
	defer file.Close()
	lockErr := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	content = said(file)
	if lockErr != nil {
		return -1, content, fmt.Errorf("lock %q: %w", path, lockErr)
	}
	// The copy shares the lock and, unlike file, is not closed by an exec.
	fd, err = unix.FcntlInt(file.Fd(), unix.F_DUPFD, firstFD)
	if errors.Is(err, unix.EINVAL) { // beyond the limit of open files
		fd, err = unix.FcntlInt(file.Fd(), unix.F_DUPFD, lowFD)
	}
	if err != nil {
		return -1, "", fmt.Errorf("hold %q: %w", path, err)
	}
	return fd, content, nil
}

// said returns what a lock file says.
func said(file *os.File) string {
	text := make([]byte, 256)
	n, _ := file.ReadAt(text, 0) // all that there is
	return strings.TrimSpace(string(text[:n]))
}

// write replaces what a lock file says.
func write(fd int, text string) error {
	err := unix.Ftruncate(fd, 0)
	if err == nil && text != "" {
		_, err = unix.Pwrite(fd, []byte(text+"\n"), 0)
	}
	if err != nil {
		return fmt.Errorf("write witness: %w", err)
	}
	return nil
}

// say appends one line to a device's log.
func (p Place) say(device, word, text string) error {
	file, err := os.OpenFile(p.file(device, logSuffix), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open witness log: %w", err)
	}
	_, err = fmt.Fprintf(file, "%s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), word, text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write witness log: %w", err)
	}
	return nil
}

// turn makes room in a log. The caller holds the device.
func (p Place) turn(device string) error {
	info, err := os.Stat(p.file(device, logSuffix))
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() < logBound {
		return nil
	}
	if err == nil {
		err = os.Rename(p.file(device, logSuffix), p.file(device, oldSuffix))
	}
	if err != nil {
		return fmt.Errorf("turn witness log: %w", err)
	}
	return nil
}
