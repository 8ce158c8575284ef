// Package model is on floor 0.
package model

import "time"

type Job struct {
	Labels  map[string]string
	Runtime time.Duration
}

func (j Job) Age() time.Duration { return time.Since(time.Time{}) }
