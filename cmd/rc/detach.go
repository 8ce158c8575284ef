package main

import (
	"context"
	"errors"
)

// errDetached ends an attached session at the word of whoever types.
var errDetached = errors.New("detached")

// detacher looks for ~. at the beginning of a line among the keys that are
// typed, as ssh does; ~~ there is one ~. It holds a ~ back until the next key.
type detacher struct {
	read   func(ctx context.Context, p []byte) (int, error)
	inLine bool
	tilde  bool // one is held back
	left   bool // ~. has been typed
}

// next returns keys for the job, or errDetached once those before it are out.
func (d *detacher) next(ctx context.Context, p []byte) (int, error) {
	for !d.left {
		n, err := d.read(ctx, p[:max(len(p)/2, 1)]) // each key may become two
		out := d.filter(append([]byte(nil), p[:n]...), p[:0])
		if len(out) > 0 || err != nil {
			return len(out), err
		}
	}
	return 0, errDetached
}

// filter appends to out what of keys is for the job.
func (d *detacher) filter(keys, out []byte) []byte {
	for _, key := range keys {
		switch {
		case d.tilde && key == '.':
			d.left = true
			return out
		case d.tilde && key == '~':
			out = append(out, '~')
		case d.tilde:
			out = append(out, '~', key)
		case !d.inLine && key == '~':
			d.tilde = true
			continue
		default:
			out = append(out, key)
		}
		d.tilde, d.inLine = false, key != '\r' && key != '\n'
	}
	return out
}
