package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxDirs bounds the directories of one archive, whose modes are remembered to
// its end.
const maxDirs = 1 << 20

// EscapeError is a member that would leave the destination, or is made to look
// harmless until a later one leaves it. Nothing was written outside.
type EscapeError struct {
	Member, Why string
	Link        bool // it is a symbolic link, which UnpackOptions.OutsideLinks lets be
}

// Error names the member and what is wrong with it.
func (e *EscapeError) Error() string {
	return fmt.Sprintf("the archive is refused: its member %q %s", e.Member, e.Why)
}

// UnpackOptions say what an archive may hold.
type UnpackOptions struct {
	// Most is how many bytes all files may have together: an archive cannot
	// hold more than it is long, but a sparse one can say so.
	Most int64
	// OutsideLinks lets symbolic links lead out of the destination. Nothing is
	// ever written through one.
	OutsideLinks bool
	// Skipped, if not nil, is told of members that are neither files nor
	// directories nor links.
	Skipped func(name string)
}

// Unpack unpacks a tar archive into root, which must be empty. Permission bits
// and times are kept, without setuid, setgid and sticky; owners are not. What
// it has unpacked when it returns an error stays in root.
//
// Refused are names that are absolute or hold "..", names that come twice,
// members below something that is no directory of the archive, links that lead
// outside, and hard links to anything but a file of the archive.
func Unpack(r io.Reader, root *os.Root, o UnpackOptions) error {
	u := &unpacker{root: root, options: o, in: tar.NewReader(r)}
	for {
		h, err := u.in.Next()
		if errors.Is(err, io.EOF) {
			return u.finish()
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if err := u.member(h); err != nil {
			return err
		}
	}
}

type unpacker struct {
	root    *os.Root
	options UnpackOptions
	in      *tar.Reader
	written int64
	dirs    []*tar.Header // as named by clean; their modes are set last
	parent  string        // the last directory that was seen to be one
}

// clean returns a member's name relative to the destination, "." for that
// itself.
func clean(name string) (string, string) {
	switch {
	case name == "" || strings.ContainsRune(name, 0):
		return "", "has no usable name"
	case strings.HasPrefix(name, "/"):
		return "", "has an absolute name"
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", "leaves the destination by .."
		}
	}
	return path.Clean(name), ""
}

func (u *unpacker) member(h *tar.Header) error {
	refuse := func(why string) error { return &EscapeError{Member: h.Name, Why: why} }
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, why := clean(h.Name)
	if why != "" {
		return refuse(why)
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return refuse("would replace the destination")
		}
		return u.remember(h, name)
	}
	if err := u.below(h, path.Dir(name)); err != nil {
		return err
	}
	if info, err := u.root.Lstat(name); err == nil {
		if info.IsDir() && h.Typeflag == tar.TypeDir {
			return u.remember(h, name)
		}
		return refuse("comes twice")
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.root.Mkdir(name, 0o700); err != nil {
			return err
		}
		return u.remember(h, name)
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return u.file(h, name)
	case tar.TypeSymlink:
		if why := LeadsOut(name, h.Linkname); why != "" && !u.options.OutsideLinks {
			return &EscapeError{Member: h.Name, Why: why, Link: true}
		}
		return u.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return u.hardLink(h, name)
	}
	if u.options.Skipped != nil {
		u.options.Skipped(name)
	}
	return nil
}

// below makes sure that a member's directory is one, and none of those above it
// a link.
func (u *unpacker) below(h *tar.Header, dir string) error {
	if dir == "." || dir == u.parent {
		return nil
	}
	if err := u.below(h, path.Dir(dir)); err != nil {
		return err
	}
	info, err := u.root.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = u.root.Mkdir(dir, 0o755)
	case err == nil && !info.IsDir():
		return &EscapeError{Member: h.Name, Why: fmt.Sprintf("lies below %q, which is no directory", dir)}
	}
	if err == nil {
		u.parent = dir
	}
	return err
}

func (u *unpacker) remember(h *tar.Header, name string) error {
	if len(u.dirs) == maxDirs {
		return fmt.Errorf("the archive is refused: it has more than %d directories", maxDirs)
	}
	u.dirs = append(u.dirs, &tar.Header{Name: name, Mode: h.Mode, ModTime: h.ModTime})
	return nil
}

func (u *unpacker) file(h *tar.Header, name string) error {
	if u.written += h.Size; u.written > u.options.Most {
		return fmt.Errorf("the archive is refused: its files are said to be longer than itself, from %q on", h.Name)
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, u.in)
	if err == nil {
		err = f.Chmod(fs.FileMode(h.Mode) & fs.ModePerm)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("unpack %q: %w", h.Name, err)
	}
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}

// LeadsOut says in what way the link name, to target, leads out of the destination, "" if it does
// not. A ".." behind a name is refused as well: that name may be a link, and
// what lies above its target is not for a string to tell.
func LeadsOut(name, target string) string {
	if strings.HasPrefix(target, "/") || target == "" {
		return fmt.Sprintf("is a link that leads out of the destination, to %q", target)
	}
	depth, named := strings.Count(name, "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 || named {
				return fmt.Sprintf("is a link that may lead out of the destination, to %q", target)
			}
		default:
			named = true
		}
	}
	return ""
}

func (u *unpacker) hardLink(h *tar.Header, name string) error {
	refuse := func(why string) error {
		return &EscapeError{Member: h.Name, Why: fmt.Sprintf("is a hard link to %q, which %s", h.Linkname, why)}
	}
	old, why := clean(h.Linkname)
	if why != "" {
		return refuse(why)
	}
	u.parent = "" // below remembers what a member lies in, not a link's target
	if err := u.below(h, path.Dir(old)); err != nil {
		return err
	}
	info, err := u.root.Lstat(old)
	if err != nil || !info.Mode().IsRegular() {
		return refuse("is no file of it")
	}
	return u.root.Link(old, name)
}

// finish gives directories their modes, the deepest first: one that nobody may
// write to must be full by then.
func (u *unpacker) finish() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		d := u.dirs[i]
		if err := u.root.Chtimes(d.Name, d.ModTime, d.ModTime); err != nil {
			return err
		}
		if err := u.root.Chmod(d.Name, fs.FileMode(d.Mode)&fs.ModePerm); err != nil {
			return err
		}
	}
	return nil
}
