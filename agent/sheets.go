package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// DefaultSheetDir is where usage sheets are: host.md for the host, and
	// host.d/DEVICE.md.
	DefaultSheetDir = "/etc/rc"
	// maxSheet bounds one sheet in bytes, and maxSheets all of a host, as the
	// lease table does.
	maxSheet  = 64 << 10
	maxSheets = 64 << 10

	sheetsEvery   = 15 * time.Second
	sheetsTimeout = 5 * time.Second
)

// sheets is what is on disk, by device; "" is the host.
type sheets struct {
	dir     string
	bodies  map[string]string // "" for one that is not there
	refused map[string]string // why one is not told
	sizes   map[string]int64  // of those that are longer than what is told
}

// path returns the file of one sheet.
func (s sheets) path(name string) string {
	if name == "" {
		return filepath.Join(s.dir, "host.md")
	}
	return filepath.Join(s.dir, "host.d", name+".md")
}

// readSheets reads the sheets of the host and its devices. Where they come to
// more than the lease table takes, the longest are cut, all to the same length,
// and end with a line that says so.
func readSheets(dir string, devices []string) sheets {
	s := sheets{dir: dir, bodies: map[string]string{}, refused: map[string]string{}, sizes: map[string]int64{}}
	files := map[string]sheetFile{}
	for _, name := range append([]string{""}, devices...) {
		file, err := readSheet(s.path(name))
		switch {
		case err == nil, errors.Is(err, os.ErrNotExist):
			files[name] = file
		default:
			s.refused[name] = err.Error()
		}
	}
	room := share(files)
	for name, file := range files {
		if s.bodies[name] = file.text; file.size > room {
			s.bodies[name], s.sizes[name] = file.cut(int(room)), file.size
		}
	}
	return s
}

// sheetFile is a sheet as it lies on disk: the text is its beginning, one byte
// more than maxSheet at most.
type sheetFile struct {
	text string
	size int64
}

// share returns how long each sheet may be so that all of them fit. A sheet that
// cannot be read stands in the table as it was; its room is not known here.
func share(files map[string]sheetFile) int64 {
	sizes := make([]int64, 0, len(files))
	for _, f := range files {
		sizes = append(sizes, min(f.size, maxSheet+1))
	}
	slices.Sort(sizes)
	room := int64(maxSheets)
	for i, size := range sizes {
		if fair := room / int64(len(sizes)-i); size > fair {
			return min(fair, maxSheet)
		}
		room -= size
	}
	return maxSheet
}

// cut returns the sheet in room bytes: whole lines, unless that would cost half
// of it, and a last one that says what is missing.
func (f sheetFile) cut(room int) string {
	notice := fmt.Sprintf("[cut: the file has %d bytes, 64 KiB are shown]\n", f.size)
	if room < maxSheet {
		notice = fmt.Sprintf("[cut: the file has %d bytes, the sheets of a host 64 KiB in all]\n", f.size)
	}
	if len(notice)+1 > room {
		return f.text[:runeStart(f.text, room)] // so many sheets that there is no room to say it
	}
	end := runeStart(f.text, room-len(notice)-1)
	if line := strings.LastIndexByte(f.text[:end], '\n'); line > end/2 {
		return f.text[:line+1] + notice
	}
	return f.text[:end] + "\n" + notice
}

// runeStart returns the last beginning of a rune at or before at.
func runeStart(text string, at int) int {
	at = max(0, min(at, len(text)))
	for at > 0 && at < len(text) && !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}

// readSheet returns a sheet or an error that says what to do.
func readSheet(path string) (sheetFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return sheetFile{}, fmt.Errorf("read usage sheet: %w", err)
	}
	if !info.Mode().IsRegular() {
		return sheetFile{}, errors.New("it is no regular file; put the text itself there")
	}
	file, err := os.Open(path)
	if err != nil {
		return sheetFile{}, fmt.Errorf("read usage sheet: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSheet+1))
	if err != nil {
		return sheetFile{}, fmt.Errorf("read usage sheet: %w", err)
	}
	size := max(info.Size(), int64(len(data)))
	whole := len(data) // up to here, the end of a rune
	if len(data) > maxSheet {
		whole = runeStart(string(data), maxSheet)
	} else {
		size = int64(len(data))
	}
	if !utf8.Valid(data[:whole]) {
		return sheetFile{}, errors.New("it is not UTF-8; convert it")
	}
	return sheetFile{text: string(data[:whole]), size: size}, nil
}
