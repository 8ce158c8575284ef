package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// PIDFile is the name of the file in a data directory that names the process
// serving it.
const PIDFile = "rcd.pid"

// WritePIDFile names this process in a file, by pid and start time, which
// guards the reader against a reused pid. The returned function removes the
// file if it still names this process.
func WritePIDFile(path string) (remove func(), err error) {
	self, err := Self()
	if err != nil {
		return nil, fmt.Errorf("write pid file %q: %w", path, err)
	}
	text := fmt.Sprintf("%d %d\n", self.PID, self.Start)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return nil, fmt.Errorf("write pid file: %w", err)
	}
	return func() {
		if now, err := os.ReadFile(path); err == nil && string(now) == text {
			_ = os.Remove(path) // a file that stays names a dead process: harmless
		}
	}, nil
}

// ReadPIDFile returns the process that a pid file names, and whether it lives.
// A file that is absent or makes no sense names nobody.
func ReadPIDFile(path string) (ID, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return ID{}, false
	}
	fields := strings.Fields(string(data))
	if len(fields) != 2 {
		return ID{}, false
	}
	pid, err := strconv.Atoi(fields[0])
	if err != nil || pid <= 1 {
		return ID{}, false
	}
	start, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return ID{}, false
	}
	id := ID{PID: pid, Start: start}
	return id, Alive(id)
}
