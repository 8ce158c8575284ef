//go:build !cgo || !linux

package probe

import "context"

// NVIDIA returns what this build looks at GPUs with.
func NVIDIA() Library { return none{} }

type none struct{}

func (none) GPUs(context.Context) ([]GPU, error) { return nil, ErrAbsent }
