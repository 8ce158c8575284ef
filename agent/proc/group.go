package proc

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// signalGroup is PIDFD_SIGNAL_PROCESS_GROUP of the kernel, since 6.9.
const signalGroup = 4

// group is the process group that a job's main process leads. A signal to it reaches everybody in it at one moment, so none can fork itself away; a number
// of our own choosing would not do, because it may be somebody else's group by then.
type group struct{ fd int }

// openGroup pins the group of a leader that is still there, be it as a zombie, unless the caller or an ancestor of it is in there. Nothing comes of it
// otherwise: then each is signalled alone.
func openGroup(leader ID) group {
	if leader.PID <= 0 {
		return group{-1}
	}
	fd, err := unix.PidfdOpen(leader.PID, 0)
	if err != nil {
		return group{-1}
	}
	// The descriptor was opened first: if the leader is there now, it is the leader's.
	p, err := readStat(leader.PID)
	ok := err == nil && p.ID == leader && p.Group == leader.PID
	for pid := range ownLine() {
		own, err := readStat(pid)
		ok = ok && err == nil && own.Group != leader.PID
	}
	if !ok {
		_ = unix.Close(fd)
		return group{-1}
	}
	return group{fd}
}

// kill does nothing where the kernel cannot.
func (g group) kill() {
	if g.fd >= 0 {
		_ = unix.PidfdSendSignal(g.fd, unix.SIGKILL, nil, signalGroup)
	}
}

func (g group) close() {
	if g.fd >= 0 {
		_ = unix.Close(g.fd)
	}
}

// SignalGroup sends sig to the process group that leader leads, as a session's first process does. ErrGone if that very process is not there any more, be
// it as a zombie. It is signalled together with its start time, as in Signal.
func SignalGroup(leader ID, sig unix.Signal) error {
	if leader.PID <= 1 {
		return ErrGone // 0 and -1 would name other groups
	}
	fd, err := unix.PidfdOpen(leader.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	if !Exists(leader) {
		if err == nil {
			_ = unix.Close(fd)
		}
		return ErrGone
	}
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
		err = unix.PidfdSendSignal(fd, sig, nil, signalGroup)
		if errors.Is(err, unix.ESRCH) {
			return ErrGone
		}
	}
	if err != nil {
		// An older kernel, or a sandbox that forbids the call: check, just now, and signal back to back.
		err = unix.Kill(-leader.PID, sig)
	}
	switch {
	case errors.Is(err, unix.ESRCH):
		return ErrGone
	case err != nil:
		return fmt.Errorf("send %s to the group of %s: %w", unix.SignalName(sig), leader, err)
	}
	return nil
}
