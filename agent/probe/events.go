package probe

import (
	"context"
	"errors"
)

// ErrNoEvents: the GPU, or its driver, reports no errors as they happen. What
// State shows is all that is known.
var ErrNoEvents = errors.New("the GPU reports no events")

// Health is what a Library may know of the state of a GPU, or of an instance of
// one, by its UUID. All methods may be called concurrently. Errors wrap
// ErrAbsent, ErrHung, ErrLost or ErrUnknown where one of them fits.
type Health interface {
	// Use returns what is on the GPU now. It returns soon after ctx ends.
	Use(ctx context.Context, uuid string) (Use, error)
	// State returns what the GPU remembers of its errors; of an instance, what the
	// GPU does that it is a part of. It returns soon after ctx ends.
	State(ctx context.Context, uuid string) (State, error)
	// Watch calls emit, one call at a time, for each error that the GPU reports
	// from now on, until ctx ends or it cannot go on: after an error of the driver
	// the caller may begin again. Errors of a split GPU that belong to none of its
	// instances are told to the watches of all. It returns ErrNoEvents at once
	// where there are none, nil after ctx has ended, then within two seconds.
	Watch(ctx context.Context, uuid string, emit func(Event)) error
}

// Event is an error that a GPU has reported.
type Event struct {
	XID    uint64 // also of errors that are told without a number, see XIDDoubleBit
	Detail string // what else is known of it; "" for nothing
}

// State is what a GPU remembers of its errors. Of what the driver cannot say
// the value is zero.
type State struct {
	// Uncorrected counts memory errors that could not be corrected, since the
	// driver was loaded or the GPU was reset.
	Uncorrected uint64
	// RemapPending: a faulty row or page is given up at the next reset.
	RemapPending bool
	// RemapFailed: one could not be; the GPU is for repair.
	RemapFailed bool
	// Recovery is what the driver asks for so that the GPU works again: words for
	// a person; "" for nothing.
	Recovery string
}
