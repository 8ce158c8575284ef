package shim

import (
	"time"

	"rcd/agent/proc"
)

// Outcome says how a job came to its end.
type Outcome string

// The outcomes. Texts are on disk.
const (
	Exited         Outcome = "exited"          // by itself; a signal from elsewhere included
	Killed         Outcome = "killed"          // by Kill or a watchdog; Reason says which
	StartFailed    Outcome = "start_failed"    // no process ever ran; Reason begins with "start: "
	SupervisorDied Outcome = "supervisor_died" // the shim or the host went down; what was left of the tree has been ended
)

// Exit codes that are not a process's own.
const (
	exitNotStarted   = -1
	exitSignalled    = 128 // plus the signal
	exitHoldFinished = 143 // what a process that SIGTERM ended would have
)

// Result is the end of a job, as it lies on disk before anybody is told.
type Result struct {
	Outcome  Outcome
	ExitCode *int   // the process's own, or 128 + signal, or -1 if it could not start; nil if it is not known
	Reason   string // empty for a job that ended by itself

	OutputLength int64
	OutputDigest string // SHA-256 of the whole output in hex; empty if it is not known

	StartedAt  time.Time // zero if it never ran
	FinishedAt time.Time // when the main process ended; the sweep and the rest of the output come after

	// Cause is set for StartFailed and SupervisorDied, unless an earlier release has written the result.
	Cause Cause

	// Survivors could not be killed. The device must not be used while any of them is there.
	Survivors []proc.Process
	// Unverified says why the tree could not be looked at; empty if it was seen empty or Survivors are all there is.
	Unverified string
}

// Clean tells whether nothing of the job is left on the host.
func (r Result) Clean() bool { return len(r.Survivors) == 0 && r.Unverified == "" }

// resultRecord is a Result as it lies on disk.
type resultRecord struct {
	Outcome      Outcome    `cbor:"1,keyasint"`
	ExitCode     *int       `cbor:"2,keyasint,omitempty"`
	Reason       string     `cbor:"3,keyasint"`
	OutputLength int64      `cbor:"4,keyasint"`
	OutputDigest string     `cbor:"5,keyasint"`
	StartedAt    int64      `cbor:"6,keyasint"`
	FinishedAt   int64      `cbor:"7,keyasint"`
	Survivors    []survivor `cbor:"8,keyasint"`
	Unverified   string     `cbor:"9,keyasint"`
}

type survivor struct {
	Process identity `cbor:"1,keyasint"`
	Command string   `cbor:"2,keyasint"`
}

func (r Result) record() resultRecord {
	rec := resultRecord{
		Outcome: r.Outcome, ExitCode: r.ExitCode, Reason: r.Reason, OutputLength: r.OutputLength, OutputDigest: r.OutputDigest,
		StartedAt: wallNS(r.StartedAt), FinishedAt: wallNS(r.FinishedAt), Unverified: r.Unverified,
	}
	for _, p := range r.Survivors {
		rec.Survivors = append(rec.Survivors, survivor{identityOf(p.ID), p.Command})
	}
	return rec
}

func (rec resultRecord) result() Result {
	r := Result{
		Outcome: rec.Outcome, ExitCode: rec.ExitCode, Reason: rec.Reason, OutputLength: rec.OutputLength, OutputDigest: rec.OutputDigest,
		StartedAt: wallTime(rec.StartedAt), FinishedAt: wallTime(rec.FinishedAt), Unverified: rec.Unverified,
	}
	for _, s := range rec.Survivors {
		r.Survivors = append(r.Survivors, proc.Process{ID: s.Process.id(), Command: s.Command})
	}
	return r
}

func writeResult(dir string, r Result) error {
	if err := writeCause(dir, r.Cause); err != nil {
		return err
	}
	if err := writeLast(dir, resultName, kindResult, r.record()); err != nil {
		return err
	}
	giveRoomBack(dir)
	return nil
}

func readResult(dir string) (Result, error) {
	var rec resultRecord
	if err := readRecord(dir, resultName, kindResult, &rec); err != nil {
		return Result{}, err
	}
	r, err := rec.result(), error(nil)
	r.Cause, err = readCause(dir, r.Outcome)
	return r, err
}
