package model

import (
	"fmt"
	"time"
)

// DetachTimeoutEnv is the variable of a job's environment that says for how
// long its terminal may go without anybody attached before the job is ended; 0
// is for ever.
const DetachTimeoutEnv = "RC_DETACH_TIMEOUT"

// DefaultDetachTimeout holds for a job that does not say.
const DefaultDetachTimeout = 10 * time.Minute

// DetachTimeout reads the value of DetachTimeoutEnv: a duration of at least a
// second, 0 for never, "" for the default. The error is a sentence's end for
// whoever wrote it.
func DetachTimeout(text string) (time.Duration, error) {
	if text == "" {
		return DefaultDetachTimeout, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > 0 && d < time.Second {
		return 0, fmt.Errorf("%.40q is no time to go without a terminal; use one like 30m, at least 1s, or 0 for no end", text)
	}
	return d, nil
}
