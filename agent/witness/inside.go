package witness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A job inside a lease has a lock of its own for each device, in DEVICE.inside:
// its processes keep that as those of a lease's own job keep DEVICE.lock, however
// long the latter lives. Whoever comes takes its own lock first and then looks at
// the other kind, so of two that come together one at least sees the other.

const insideSuffix = ".inside"

func (p Place) seat(device, job string) string {
	return filepath.Join(p.file(device, insideSuffix), job)
}

// join is Take for a job inside a lease. That the lease's own job has just given
// the devices back is no harm; that another lease has one is.
func (p Place) join(holder Holder) (*Hold, error) {
	p.Devices = slices.Sorted(slices.Values(p.Devices))
	h := &Hold{place: p, holder: holder}
	for _, d := range p.Devices {
		if err := h.sit(d); err != nil {
			for i := range h.fds { // nobody has inherited them
				_ = os.Remove(p.seat(p.Devices[i], holder.Job))
			}
			h.LetGo()
			return nil, err
		}
	}
	for i, d := range p.Devices {
		err := p.turnInside(d)
		if err == nil {
			err = write(h.fds[i], holder.String())
		}
		if err == nil {
			err = p.say(d, wordInside, holder.String())
		}
		if err != nil {
			h.LetGo()
			return nil, err
		}
	}
	return h, nil
}

// sit takes the job's own lock of a device, and refuses it if another lease has
// the device.
func (h *Hold) sit(device string) error {
	p := h.place
	if err := os.MkdirAll(p.file(device, insideSuffix), 0o700); err != nil {
		return fmt.Errorf("make witness directory: %w", err)
	}
	fd, content, err := lock(p.seat(device, h.holder.Job))
	if err == nil {
		h.fds = append(h.fds, fd)
		content, err = p.foreign(device, h.holder.Lease)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return p.twice(device, h.holder, content)
	}
	return err
}

// foreign returns EWOULDBLOCK, and who it is, if another lease has a device. Its
// lock is a shared one, for others of the lease may look as well.
func (p Place) foreign(device string, lease uint64) (content string, err error) {
	file, err := os.OpenFile(p.file(device, lockSuffix), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", fmt.Errorf("open witness: %w", err)
	}
	defer file.Close() // which ends the lock, for nobody inherits it
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		return "", nil
	}
	if content = said(file); errors.Is(err, unix.EWOULDBLOCK) && strings.HasPrefix(content, fmt.Sprintf("lease=%d ", lease)) {
		return "", nil
	}
	return content, err
}

// empty sees to it that no job inside an earlier lease is left on a device. What
// died without a word is said to be gone.
func (p Place) empty(device string, holder Holder) error {
	seats, err := os.ReadDir(p.file(device, insideSuffix))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for jobs inside: %w", err)
	}
	var refused error
	for _, seat := range seats {
		path := p.seat(device, seat.Name())
		fd, content, err := lock(path)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			refused = errors.Join(refused, p.twice(device, holder, content))
			continue
		case err != nil:
			refused = errors.Join(refused, err)
			continue
		case content != "":
			err = p.say(device, wordGone, content)
		}
		refused = errors.Join(refused, err, os.Remove(path), unix.Close(fd))
	}
	return refused
}

// twice puts down that a device is used twice, and returns it as an error.
func (p Place) twice(device string, holder Holder, content string) error {
	err := fmt.Errorf("%w: %s is in use by %s", ErrDouble, device, content)
	return errors.Join(err, p.say(device, wordDouble, fmt.Sprintf("%v holder=%q", holder, content)))
}

// turnInside is turn for those who have a device together: one of them does it.
func (p Place) turnInside(device string) error {
	dir, err := os.Open(p.file(device, insideSuffix))
	if err != nil {
		return fmt.Errorf("turn witness log: %w", err)
	}
	defer dir.Close()
	if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // another one is at it
	}
	return p.turn(device)
}
