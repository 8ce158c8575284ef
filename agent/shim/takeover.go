package shim

import (
	"context"
	"errors"
	"math/rand/v2"
)

// takeOverStep bounds by how much a take-over raises the writer's number. Two who take over at the same moment see the same number before them; that each
// adds its own lets one of them win instead of both writing as one. 2^32 leaves room for as many take-overs as nobody makes.
const takeOverStep = 1 << 32

// TakeInput opens the job's input under a number above all that have written so far, which Writer tells. Otherwise it is like Input.
func (h *Handle) TakeInput(ctx context.Context) (*Input, error) {
	// Nobody is below 0: the shim says who writes, and takes nothing over.
	look, err := h.begunInput(ctx, 0)
	if err != nil {
		return nil, err
	}
	err = look.letIn()
	last := look.Holder()
	look.Close()
	if err != nil && !errors.Is(err, ErrOtherWriter) {
		return nil, err
	}
	return h.Input(ctx, last+1+rand.Uint64N(takeOverStep))
}

// Writer returns the number under which this Input writes.
func (in *Input) Writer() uint64 { return in.writer }

// Holder returns the number of the writer that the shim takes input from, as it said last.
func (in *Input) Holder() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.state.Writer
}

// Accepted returns the offset before which the job's shim has all of the input. Nothing but the end of the shim loses that.
func (in *Input) Accepted() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.state.Accepted
}

// WaitAccepted returns Accepted as soon as it is more than since. The error is why the input is over, or ctx's.
func (in *Input) WaitAccepted(ctx context.Context, since int64) (int64, error) {
	for {
		in.mu.Lock()
		accepted, err, changed := in.state.Accepted, in.err, in.changed
		in.mu.Unlock()
		if accepted > since {
			return accepted, nil
		}
		if err != nil {
			return accepted, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return accepted, ctx.Err()
		}
	}
}
