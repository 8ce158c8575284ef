package client

import (
	"bufio"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"rcd/internal/archive"
)

//go:embed copy/to.sh
var scriptTo string

// The kinds of what is copied.
const (
	copyFile = "file"
	copyTree = "tree"
	copyLink = "link"
)

// source is what is copied from this machine: a stream of bytes that is the
// same each time as long as the source is.
type source struct {
	kind, path, name string
	file             *os.File // of a file
	size             int64    // of a file
	target           string   // of a link
	mode             fs.FileMode
	modified         time.Time
	skipped          func(string)
}

func openSource(o CopyOptions) (*source, error) {
	s := &source{path: o.Local}
	full, err := filepath.Abs(o.Local) // gives "." and ".." their names
	if err != nil {
		return nil, fmt.Errorf("name %s: %w", o.Local, err)
	}
	if s.name = filepath.Base(full); s.name == "/" {
		s.name = "root"
	}
	info, err := os.Lstat(o.Local)
	if err != nil {
		return nil, err
	}
	s.mode, s.modified = info.Mode().Perm(), info.ModTime()
	switch info.Mode().Type() {
	case fs.ModeDir:
		s.kind = copyTree
	case fs.ModeSymlink:
		s.kind = copyLink
		s.target, err = os.Readlink(o.Local)
	case 0:
		s.kind = copyFile
		if s.file, err = os.OpenFile(o.Local, os.O_RDONLY|syscall.O_NOFOLLOW, 0); err == nil {
			info, err = s.file.Stat()
		}
		if err == nil {
			s.size = info.Size()
		}
	default:
		err = fmt.Errorf("%s is neither a file nor a directory nor a link", o.Local)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	told := map[string]bool{} // it is read twice
	s.skipped = func(path string) {
		if len(told) < 10 && !told[path] {
			told[path] = true
			o.note("%s is left out: it is neither a file nor a directory nor a link", path)
		}
	}
	return s, nil
}

func (s *source) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// write writes the stream from an offset on.
func (s *source) write(ctx context.Context, w io.Writer, from int64) error {
	w = &heedful{ctx: ctx, w: w}
	switch s.kind {
	case copyTree:
		return archive.Write(ctx, &without{w: w, left: from}, s.path, s.skipped)
	case copyFile:
		n, err := io.Copy(w, io.NewSectionReader(s.file, from, s.size-from))
		if err == nil && n < s.size-from {
			return fmt.Errorf("%s: %w", s.path, archive.ErrChanged)
		}
		return err
	}
	return nil
}

// heedful is a writer that fails once its context has ended.
type heedful struct {
	ctx context.Context
	w   io.Writer
}

func (h *heedful) Write(p []byte) (int, error) {
	if h.ctx.Err() != nil {
		return 0, context.Cause(h.ctx)
	}
	return h.w.Write(p)
}

// without leaves out the first bytes.
type without struct {
	w    io.Writer
	left int64
}

func (s *without) Write(p []byte) (int, error) {
	cut := min(s.left, int64(len(p)))
	s.left -= cut
	if cut == int64(len(p)) {
		return len(p), nil
	}
	n, err := s.w.Write(p[cut:])
	return n + int(cut), err
}

// place is a destination on a device host.
type place struct{ dir, name string }

func (p place) String() string {
	return strings.TrimPrefix(strings.TrimSuffix(p.dir, "/")+"/", "./") + p.name
}

// remotePath is a path as the far side's script takes it: it begins with / or
// ./, so that no program takes it for an option. ~ is the home directory, where
// jobs begin.
func remotePath(remote string) string {
	if remote == "~" || strings.HasPrefix(remote, "~/") {
		remote = strings.TrimLeft(remote[1:], "/")
	}
	if strings.HasPrefix(remote, "/") {
		return remote
	}
	return "./" + remote
}

// remotePlace applies the rule of the slash.
func remotePlace(remote, name string) place {
	remote = remotePath(remote)
	at := strings.LastIndexByte(remote, '/')
	dir, last := remote[:at+1], remote[at+1:]
	if last == "" || last == "." || last == ".." {
		dir, last = remote, name
	}
	if dir = strings.TrimRight(dir, "/"); dir == "" {
		dir = "/"
	}
	return place{dir, last}
}

// copyKey names a copy by its two ends, so that another try of it finds what
// this one leaves.
func copyKey(ends ...string) string {
	host, _ := os.Hostname()
	sum := sha256.Sum256([]byte(strings.Join(append(ends, host), "\x00")))
	return hex.EncodeToString(sum[:4])
}

// maxPartName leaves room in a file name for what goes around it.
const maxPartName = 200

// partName is the file that collects what arrives for a name.
func partName(name, key string) string {
	for len(name) > maxPartName {
		_, last := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-last]
	}
	return "." + name + ".rc-cp-" + key + ".part"
}

// upload is one CopyTo.
type upload struct {
	exchange
	source *source
	place  place

	have    chan haveLine // what is there already, once
	there   atomic.Bool   // something of it may be kept on the far side
	result  CopyResult
	reading *io.PipeReader // of the bytes to send, nil before
	read    chan struct{}  // closed when its writer has ended
	total   int64
	sent    int64
	at      int64 // how far the far side said that it is
}

type haveLine struct {
	alg, sum string
	n        int64
}

func (u *upload) run(ctx context.Context, c *Client, o CopyOptions) (CopyResult, error) {
	full, err := filepath.Abs(o.Local)
	if err != nil {
		return CopyResult{}, fmt.Errorf("name %s: %w", o.Local, err)
	}
	begun := time.Now()
	key := copyKey("to", full, o.DeviceID, u.place.dir, u.place.name)
	part := partName(u.place.name, key)
	stamp := ""
	if y := u.source.modified.UTC().Year(); y >= 1970 && y < 10_000 {
		stamp = u.source.modified.UTC().Format("200601021504.05")
	}
	u.have = make(chan haveLine, 1)
	u.exchange = exchange{client: c, CopyOptions: &o, script: scriptTo, in: u.next, out: io.Discard, control: u.control,
		command: []string{"to", key, u.place.dir, u.place.name, u.source.kind, fmt.Sprintf("%04o", u.source.mode), stamp, part, u.source.target}}
	err = u.exchange.run(ctx)
	if u.reading != nil {
		u.reading.Close()
		<-u.read
	}
	if u.job != nil {
		u.result.JobID, u.result.Hold = u.job.ID, u.hold
	}
	u.result.Path, u.result.Took = o.DeviceID+":"+u.place.String(), time.Since(begun)
	var failed *CopyError
	if errors.As(err, &failed) && u.there.Load() {
		failed.Kept = o.DeviceID + ":" + place{u.place.dir, part}.String()
	}
	return u.result, err
}

// control takes what the far side says.
func (u *upload) control(word string, rest []string) error {
	switch {
	case word == "have" && len(rest) == 3:
		n, err := strconv.ParseInt(rest[1], 10, 64)
		if err != nil || n < 0 || rest[0] != sumSHA256 && rest[0] != sumCRC {
			break
		}
		u.busy.Store(false)
		u.moved()
		u.there.Store(n > 0)
		select {
		case u.have <- haveLine{alg: rest[0], n: n, sum: rest[2]}:
			return nil
		default:
		}
	case word == "at" && len(rest) == 1:
		if n, err := strconv.ParseInt(rest[0], 10, 64); err == nil {
			if n != u.at || u.busy.Load() {
				u.moved()
			}
			u.at = n
			return nil
		}
	case word == "dropped":
		u.there.Store(false)
		return nil
	case word == "done":
		u.done = true
		return nil
	}
	return fmt.Errorf("the far side says what no copy says: %s", printable(word))
}

// next returns the bytes to send. The first line says from where on, how many
// in all, and what their checksum has to be.
func (u *upload) next(ctx context.Context, p []byte) (int, error) {
	if u.reading == nil {
		if err := u.begin(ctx); err != nil {
			return 0, err
		}
	}
	n, err := u.reading.Read(p)
	u.moved()
	u.sent += int64(n)
	switch {
	case err == nil:
		u.progress(CopyProgress{Step: CopyMoving, Done: min(u.sent, u.total), Total: u.total, Resumed: u.result.ResumedFrom})
	case errors.Is(err, io.EOF):
		u.progress(CopyProgress{Step: CopyEnding, Done: u.total, Total: u.total, Resumed: u.result.ResumedFrom})
	}
	return n, err
}

// begin reads the source once, compares its beginning with what is there, and
// opens it for a second time.
func (u *upload) begin(ctx context.Context) error {
	var have haveLine
	select {
	case have = <-u.have:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	sums := newTally(have.alg == sumCRC)
	sums.markAt(have.n)
	if err := u.source.write(ctx, io.MultiWriter(sums, noting(u.moved)), 0); err != nil {
		return err
	}
	from := have.n
	if sums.atMark == nil || sums.atMark[have.alg] != have.sum {
		from = 0
	}
	all := sums.sums()
	u.result.Bytes, u.result.ResumedFrom, u.result.SHA256 = sums.n, from, all[sumSHA256]
	u.total, u.sent = sums.n, from
	line := fmt.Sprintf("%d %d %s\n", from, sums.n, all[have.alg])
	u.sent -= int64(len(line))
	u.there.Store(u.total > 0)
	r, w := io.Pipe()
	u.reading, u.read = r, make(chan struct{})
	go func() {
		defer close(u.read)
		out := bufio.NewWriterSize(w, inputPiece) // an archive's headers are small
		_, err := out.WriteString(line)
		if err == nil {
			err = u.source.write(ctx, out, from)
		}
		if err == nil {
			err = out.Flush()
		}
		w.CloseWithError(err)
	}()
	return nil
}

// noting is a writer that only says that something is written.
type noting func()

func (n noting) Write(p []byte) (int, error) {
	n()
	return len(p), nil
}
