package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"rcd/internal/archive"
)

// target is a destination on this machine: a name in a directory that nothing
// leaves, and the file beside it that collects what arrives.
type target struct {
	dir, name string
	remote    string // the source, as the far side's script takes it
	key       string
	root      *os.Root
	part      *os.File
}

// openTarget applies the rule of the destination, and opens what an earlier try
// has left, or makes it. Nobody else has it then.
func openTarget(o CopyOptions) (*target, error) {
	t := &target{dir: o.Local, remote: remotePath(o.Remote)}
	base := path.Base(t.remote)
	info, err := os.Stat(o.Local)
	into := err == nil && info.IsDir() || o.Local == "" || strings.HasSuffix(o.Local, "/")
	switch {
	case !into:
		t.dir, t.name = filepath.Dir(o.Local), filepath.Base(o.Local)
	case base == "/" || base == "." || base == "..":
		return nil, fmt.Errorf("%q has no name of its own; say what %s is to be called in %s", o.Remote, o.Remote, o.Local)
	default:
		t.name = base
	}
	if strings.HasSuffix(t.remote, "/") {
		t.remote += "." // what a link leads to, not the link
	}
	if t.dir == "" {
		t.dir = "."
	}
	if err := os.MkdirAll(t.dir, 0o777); err != nil {
		return nil, err
	}
	full, err := filepath.Abs(t.dir)
	if err != nil {
		return nil, fmt.Errorf("name %s: %w", t.dir, err)
	}
	if t.root, err = os.OpenRoot(t.dir); err != nil {
		return nil, err
	}
	t.key = copyKey("from", full, t.name, o.DeviceID, t.remote)
	if err := t.lock(); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// lock opens the file that collects what arrives, for this process alone.
func (t *target) lock() error {
	name := t.partName()
	if info, err := t.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return inTheWay("%s is no file that rc has made; move it away", filepath.Join(t.dir, name))
	}
	f, err := t.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := alone(f, t.root, name); err != nil {
		f.Close()
		return err
	}
	t.part = f
	return nil
}

// alone locks an open file, and makes sure that it is still what has the name:
// it may have been renamed to what it was to become before it was locked.
func alone(f *os.File, root *os.Root, name string) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return inTheWay("another rc cp of the same is under way; wait for its end, or end it")
	}
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	if now, err := root.Lstat(name); err != nil || !os.SameFile(mine, now) {
		return inTheWay("another rc cp of the same has ended just now; look, and copy again if need be")
	}
	return nil
}

func (t *target) partName() string { return partName(t.name, t.key) }
func (t *target) path() string     { return filepath.Join(t.dir, t.name) }

// close lets go of it; an empty collecting file goes away.
func (t *target) close() {
	if t.part != nil {
		if info, err := t.part.Stat(); err == nil && info.Size() == 0 && t.kept() == "" {
			_ = t.drop()
		}
		t.part.Close()
	}
	if t.root != nil {
		t.root.Close()
	}
}

// kept is where there is something that the next try can go on from.
func (t *target) kept() string {
	mine, err := t.part.Stat()
	if err != nil || mine.Size() == 0 {
		return ""
	}
	if now, err := t.root.Lstat(t.partName()); err != nil || !os.SameFile(mine, now) {
		return ""
	}
	return filepath.Join(t.dir, t.partName())
}

// empty forgets what an earlier try has left.
func (t *target) empty() error {
	if err := t.part.Truncate(0); err != nil {
		return err
	}
	_, err := t.part.Seek(0, io.SeekStart)
	return err
}

// drop removes the collecting file if it is ours still.
func (t *target) drop() error {
	mine, err := t.part.Stat()
	if err != nil {
		return err
	}
	if now, err := t.root.Lstat(t.partName()); err != nil || !os.SameFile(mine, now) {
		return nil
	}
	return t.root.Remove(t.partName())
}

// commit puts what has arrived where it belongs.
func (t *target) commit(ctx context.Context, what *fetched, o *CopyOptions) error {
	there, err := t.root.Lstat(t.name)
	isDir := err == nil && there.IsDir()
	if what.kind != copyTree && isDir {
		return inTheWay("%s is a directory; move it away", t.path())
	}
	switch what.kind {
	case copyTree:
		return t.unpack(ctx, o, err == nil, isDir)
	case copyLink:
		return t.link(o)
	}
	if err := t.part.Chmod(what.mode); err != nil {
		return err
	}
	if !what.modified.IsZero() {
		if err := t.root.Chtimes(t.partName(), what.modified, what.modified); err != nil {
			return err
		}
	}
	return t.root.Rename(t.partName(), t.name)
}

// maxLink bounds the target of a link; no system takes a longer one.
const maxLink = 4096

func (t *target) link(o *CopyOptions) error {
	text := make([]byte, maxLink+1)
	n, err := t.part.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	to := strings.TrimSuffix(string(text[:n]), "\n")
	if why := archive.LeadsOut(t.name, to); why != "" && !o.OutsideLinks {
		_ = t.drop()
		return &archive.EscapeError{Member: t.name, Why: why, Link: true}
	}
	fresh := t.partName() + ".l"
	_ = t.root.Remove(fresh) // of a try that was killed
	if err := t.root.Symlink(to, fresh); err != nil {
		return err
	}
	if err := t.root.Rename(fresh, t.name); err != nil {
		return err
	}
	return t.drop()
}

// unpack unpacks an archive beside the destination and moves it there.
func (t *target) unpack(ctx context.Context, o *CopyOptions, there, isDir bool) error {
	if there && !isDir {
		return inTheWay("%s is no directory; move it away", t.path())
	}
	info, err := t.part.Stat()
	if err != nil {
		return err
	}
	if _, err := t.part.Seek(0, io.SeekStart); err != nil {
		return err
	}
	stage := t.partName() + ".d"
	if err := t.root.RemoveAll(stage); err != nil { // of a try that was killed
		return err
	}
	if err := t.root.Mkdir(stage, 0o700); err != nil {
		return err
	}
	defer t.root.RemoveAll(stage)
	inside, err := t.root.OpenRoot(stage)
	if err != nil {
		return err
	}
	err = archive.Unpack(&heedfulReader{ctx, t.part}, inside, archive.UnpackOptions{
		Most: info.Size(), OutsideLinks: o.OutsideLinks,
		Skipped: func(name string) { o.note("%s is left out: it is neither a file nor a directory nor a link", name) },
	})
	inside.Close()
	if err != nil {
		if errors.As(err, new(*archive.EscapeError)) {
			_ = t.drop() // what is refused once is refused again
		}
		return err
	}
	if !isDir {
		if err := t.root.Rename(stage, t.name); err != nil {
			return err
		}
		return t.drop()
	}
	if err := t.clash(stage, t.name); err != nil {
		return err
	}
	if err := t.merge(stage, t.name); err != nil {
		return fmt.Errorf("%w; what was in %s before is replaced in part", err, t.path())
	}
	return t.drop()
}

type heedfulReader struct {
	ctx context.Context
	r   io.Reader
}

func (h *heedfulReader) Read(p []byte) (int, error) {
	if h.ctx.Err() != nil {
		return 0, context.Cause(h.ctx)
	}
	return h.r.Read(p)
}

// clash fails if something in from cannot go to where to is.
func (t *target) clash(from, to string) error {
	return t.each(from, to, func(a, b string, aDir, bThere, bDir bool) error {
		switch {
		case aDir && bDir:
			return t.clash(a, b)
		case aDir && bThere:
			return inTheWay("%s is no directory; move it away", filepath.Join(t.dir, b))
		case bDir:
			return inTheWay("%s is a directory; move it away", filepath.Join(t.dir, b))
		}
		return nil
	})
}

// merge moves what is in from to where to is, each file by one rename. A
// directory that its owner may not write to is opened for that, and shut again.
func (t *target) merge(from, to string) (err error) {
	if err := t.root.Chmod(from, 0o700); err != nil {
		return err
	}
	if info, err := t.root.Stat(to); err == nil && info.Mode().Perm()&0o200 == 0 && t.root.Chmod(to, info.Mode().Perm()|0o200) == nil {
		defer func() { err = errors.Join(err, t.root.Chmod(to, info.Mode().Perm())) }()
	}
	return t.each(from, to, func(a, b string, aDir, _, bDir bool) error {
		if !aDir {
			return t.root.Rename(a, b)
		}
		if bDir {
			return t.merge(a, b)
		}
		info, err := t.root.Lstat(a)
		if err != nil {
			return err
		}
		// A directory that its owner may not write to cannot be moved.
		return errors.Join(t.root.Chmod(a, info.Mode().Perm()|0o700), t.root.Rename(a, b), t.root.Chmod(b, info.Mode().Perm()))
	})
}

// each calls f for all that is in from, with what is of the same name in to.
func (t *target) each(from, to string, f func(a, b string, aDir, bThere, bDir bool) error) error {
	if _, err := t.root.Stat(from); err != nil {
		return err
	}
	entries, err := fs.ReadDir(t.root.FS(), from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		a, b := path.Join(from, entry.Name()), path.Join(to, entry.Name())
		_, err := t.root.Lstat(b)
		info, err2 := t.root.Stat(b) // a link to a directory inside is one
		if err := f(a, b, entry.IsDir(), err == nil, err2 == nil && info.IsDir()); err != nil {
			return err
		}
	}
	return nil
}
