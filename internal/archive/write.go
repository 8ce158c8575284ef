package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrChanged says that a file was not what it had been a moment before.
var ErrChanged = errors.New("it changes while it is read")

// Write writes the directory dir and all below it as a tar archive, in the
// order of names. Permission bits, times to the second, and symbolic links as
// they are; no owners. Two writes of what has not changed are equal byte by
// byte. skipped, if not nil, is told of what an archive cannot hold (sockets,
// pipes, devices), by its path below dir.
func Write(ctx context.Context, w io.Writer, dir string, skipped func(path string)) error {
	out := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return fmt.Errorf("name %s: %w", path, err)
		}
		switch entry.Type() {
		case 0:
			return writeFile(out, name, path)
		case fs.ModeDir, fs.ModeSymlink:
			return writeEntry(out, name, path, entry)
		}
		if skipped != nil {
			skipped(name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return out.Close()
}

// header is what the archive says of a member. The format is the one that every
// tar reads, busybox's too.
func header(info fs.FileInfo, name, link string) (*tar.Header, error) {
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", name, err)
	}
	name = "./" + filepath.ToSlash(name)
	if info.IsDir() {
		name += "/"
	}
	return &tar.Header{
		Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size,
		Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(0), Format: tar.FormatGNU,
	}, nil
}

func writeEntry(out *tar.Writer, name, path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	link := ""
	if info.Mode().Type() == fs.ModeSymlink {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := header(info, name, link)
	if err != nil {
		return err
	}
	return out.WriteHeader(h)
}

// writeFile takes size and mode from the opened file, so that what is read is
// what they are of.
func writeFile(out *tar.Writer, name, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", path, ErrChanged)
	}
	h, err := header(info, name, "")
	if err != nil {
		return err
	}
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(f, h.Size))
	if err == nil && n < h.Size {
		err = fmt.Errorf("%s: %w", path, ErrChanged)
	}
	return err
}
