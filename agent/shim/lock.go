package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// errTaken says that this job has a shim, or had one.
var errTaken = errors.New("the job has been started by another shim")

// takeLock returns the locked file; closing it unlocks, and so does the death of the process. errTaken if somebody else has the lock. The lock
// belongs to the open file, so two holders in one process exclude each other too, and a job does not inherit it.
func takeLock(dir string) (*os.File, error) {
	file, err := openLock(dir)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, errTaken
	}
	return nil, fmt.Errorf("lock job: %w", err)
}

// lockHeld tells whether somebody has the lock, without taking it: two who only look must not see each other.
func lockHeld(dir string) (bool, error) {
	file, err := openLock(dir)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return false, fmt.Errorf("look at lock of job: %w", err)
	}
	return lock.Type != unix.F_UNLCK, nil
}

func openLock(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock job: %w", err)
	}
	return file, nil
}
