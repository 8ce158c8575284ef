package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// DefaultCopySilence is how long a copy may stand still before it is given up.
// A bound on the whole would cut off what is large and comes in slowly.
const DefaultCopySilence = 5 * time.Minute

// What callers of CopyTo and CopyFrom tell apart, beside the errors of any call.
var (
	// ErrDeviceHeldByAnother: the device is leased, and not by a hold of the
	// submitter's. A copy runs under a lease like anything else that touches a
	// device, so there is no way past its holder. See HeldError for whom.
	ErrDeviceHeldByAnother = errors.New("the device is held by another job")

	// ErrCopySilent: nothing has moved for the time of CopyOptions.Silence.
	ErrCopySilent = errors.New("nothing has moved")

	// ErrCopyTarget: something is in the way at the destination.
	ErrCopyTarget = errors.New("the destination is in the way")
)

// CopyOptions describe one transfer between this machine and a device's host.
type CopyOptions struct {
	DeviceID string
	// Local is a path on this machine, Remote one on the device host; relative
	// ones there begin at the home directory of jobs.
	//
	// The source may be a file, a directory or a symbolic link, which is copied
	// as one. A destination that ends with / is the directory to copy into, the
	// source's name kept; a local one that is a directory already is that too.
	// Any other is the new name.
	Local, Remote string
	Submitter     string
	// Silence is for how long nothing may move; zero means DefaultCopySilence.
	Silence time.Duration
	// OutsideLinks lets a fetched directory have links that lead out of it.
	OutsideLinks bool
	// Progress, if not nil, is told of each step and of bytes as they pass, and
	// Note one line for a person at a time. Both are called by several
	// goroutines, and must not block.
	Progress func(CopyProgress)
	Note     func(line string)
}

// CopyStep is what a copy is doing.
type CopyStep string

// The steps of a copy, in this order.
const (
	CopyStarting CopyStep = "starting" // the device is asked for
	CopyChecking CopyStep = "checking" // what is there already is compared
	CopyMoving   CopyStep = "copying"
	CopyEnding   CopyStep = "finishing" // what has come is checked and put in its place
)

// CopyProgress is how far a copy is.
type CopyProgress struct {
	Step CopyStep
	// Done counts from the beginning of what is copied, Resumed of which were
	// there before. Total is 0 if it is not known.
	Done, Total, Resumed int64
	About                bool // Total is an estimate
}

// CopyResult is a copy that has succeeded: what is at the destination is what
// the source was, by a checksum that each side made of its own.
type CopyResult struct {
	JobID string
	Hold  string // the hold that it ran inside, if any
	Path  string // what it has become
	// Bytes is the length of the file, or of the archive of a directory;
	// ResumedFrom is how many of them an earlier try had brought.
	Bytes, ResumedFrom int64
	SHA256             string // of these bytes
	Took               time.Duration
}

// HeldError says who holds the device. It is an ErrDeviceHeldByAnother, and an
// ErrNoDevice.
type HeldError struct {
	DeviceID, JobID, Kind, Holder string
	Mine                          bool // a job of the submitter's own
	// State is the device's if nobody holds it.
	State string
}

// Error says who holds it, and what to do.
func (e *HeldError) Error() string {
	switch {
	case e.JobID == "":
		return fmt.Sprintf("%s is not to be had: it is %s; look with: rc describe %s", e.DeviceID, e.State, e.DeviceID)
	case e.Mine:
		return fmt.Sprintf("%s runs your own %s %s; wait for it with rc wait %[3]s, end it with rc kill %[3]s, or take the device with rc hold and work inside of that", e.DeviceID, e.Kind, e.JobID)
	}
	return fmt.Sprintf("%s is held by %s with %s %s; try again when that has ended", e.DeviceID, e.Holder, e.Kind, e.JobID)
}

// Is makes errors.Is work with the sentinels.
func (e *HeldError) Is(target error) bool {
	return target == ErrDeviceHeldByAnother && !e.Mine || target == ErrNoDevice
}

// CopyError is a copy that had begun and has failed. What stood at the
// destination before is untouched, unless the text says otherwise.
type CopyError struct {
	Err   error
	JobID string
	// Running: the job could not be seen to end, and may still be there.
	Running bool
	// Kept is where what has arrived is kept, "" if nothing is. The same copy
	// asked for again goes on from there.
	Kept string
}

// Error returns the reason alone; Kept and Running are for the caller to tell.
func (e *CopyError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *CopyError) Unwrap() error { return e.Err }

// saidError is a sentence that is one of the errors above.
type saidError struct {
	text string
	is   error // or nil
}

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() error { return e.is }

func inTheWay(format string, args ...any) error {
	return &saidError{fmt.Sprintf(format, args...), ErrCopyTarget}
}

// CopyTo copies from this machine to the device host. It runs as a pipe job
// under a lease that it does not wait for, or inside a running hold of the
// submitter's.
//
// The bytes go to a file beside the destination, ".NAME.rc-cp-KEY.part", which
// is renamed when its checksum is right. One that an earlier try has left is
// gone on with if it is the beginning of what is to be sent now; the source is
// read once to find out, and once to send it. A directory travels as an archive
// that is unpacked beside the destination; a directory that is there already
// stays, and each file of it that comes again is replaced by a rename.
//
// An error from before there was a job is a *HeldError or what any call
// returns; a later one is a *CopyError. When ctx ends the job is ended.
func (c *Client) CopyTo(ctx context.Context, o CopyOptions) (CopyResult, error) {
	src, err := openSource(o)
	if err != nil {
		return CopyResult{}, err
	}
	defer src.close()
	return (&upload{source: src, place: remotePlace(o.Remote, src.name)}).run(ctx, c, o)
}

// CopyFrom is CopyTo in the other direction; it keeps what has come beside the
// local destination, under a name of the same form. The far side is not trusted:
// an archive that would leave the destination is refused, with nothing written
// outside (an *archive.EscapeError).
func (c *Client) CopyFrom(ctx context.Context, o CopyOptions) (CopyResult, error) {
	d, err := openTarget(o)
	if err != nil {
		return CopyResult{}, err
	}
	defer d.close()
	return (&download{target: d}).run(ctx, c, o)
}

func (o *CopyOptions) progress(p CopyProgress) {
	if o.Progress != nil {
		o.Progress(p)
	}
}

func (o *CopyOptions) note(format string, args ...any) {
	if o.Note != nil {
		o.Note(printable(fmt.Sprintf(format, args...)))
	}
}

// printable keeps what others say from driving a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
