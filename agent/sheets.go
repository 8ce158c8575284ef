package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"
)

const (
	// DefaultSheetDir is where usage sheets are: host.md for the host, and
	// host.d/DEVICE.md.
	DefaultSheetDir = "/etc/rc"
	// maxSheet bounds one sheet in bytes, as the lease table does.
	maxSheet = 64 << 10

	sheetsEvery   = 15 * time.Second
	sheetsTimeout = 5 * time.Second
)

// sheets is what is on disk, by device; "" is the host.
type sheets struct {
	dir     string
	bodies  map[string]string // "" for one that is not there
	refused map[string]string // why one is not told
}

// path returns the file of one sheet.
func (s sheets) path(name string) string {
	if name == "" {
		return filepath.Join(s.dir, "host.md")
	}
	return filepath.Join(s.dir, "host.d", name+".md")
}

// readSheets reads the sheets of the host and its devices.
func readSheets(dir string, devices []string) sheets {
	s := sheets{dir: dir, bodies: map[string]string{}, refused: map[string]string{}}
	for _, name := range append([]string{""}, devices...) {
		body, err := readSheet(s.path(name))
		switch {
		case err == nil:
			s.bodies[name] = body
		case errors.Is(err, os.ErrNotExist):
			s.bodies[name] = ""
		default:
			s.refused[name] = err.Error()
		}
	}
	return s
}

// readSheet returns a whole sheet or an error that says what to do.
func readSheet(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read usage sheet: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("it is no regular file; put the text itself there")
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read usage sheet: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSheet+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read usage sheet: %w", err)
	case len(data) > maxSheet:
		return "", fmt.Errorf("it has more than %d bytes; shorten it", maxSheet)
	case !utf8.Valid(data):
		return "", errors.New("it is not UTF-8; convert it")
	}
	return string(data), nil
}
