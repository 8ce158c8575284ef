package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// plant makes a directory with one of everything in it.
func plant(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tree")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"a", "a/b", "empty"} {
		must(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	long := strings.Repeat("n", 180)
	for name, mode := range map[string]fs.FileMode{"run.sh": 0o750, "a/ünd so": 0o640, "a/b/" + long: 0o600, "-dash": 0o644} {
		must(os.WriteFile(filepath.Join(dir, name), []byte("text of "+name), mode))
		must(os.Chtimes(filepath.Join(dir, name), time.Time{}, time.Unix(1_700_000_000, 0)))
	}
	must(os.Chmod(filepath.Join(dir, "run.sh"), 0o4750|fs.ModeSetuid))
	must(os.Symlink("../run.sh", filepath.Join(dir, "a", "up")))
	must(os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	must(os.Chmod(filepath.Join(dir, "a/b"), 0o555))
	return dir
}

// listing is all of a directory: names, modes, times, links and contents.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		link, _ := os.Readlink(path)
		text := []byte(nil)
		if info.Mode().IsRegular() {
			text, err = os.ReadFile(path)
		}
		stamp := info.ModTime().Unix()
		if link != "" {
			stamp = 0 // a link's own time is not kept
		}
		b.WriteString(name + " " + info.Mode().String() + " " + link + " " + string(text) + " " + time.Unix(stamp, 0).UTC().String() + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func write(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(t.Context(), &b, dir, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpack unpacks into a directory beside which a file lies that is not to be
// touched.
func unpack(t *testing.T, data []byte, o UnpackOptions) (dir string, err error) {
	t.Helper()
	around := t.TempDir()
	dir = filepath.Join(around, "into")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(around, "outside")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if o.Most == 0 {
		o.Most = int64(len(data))
	}
	err = Unpack(bytes.NewReader(data), root, o)
	if text, err := os.ReadFile(secret); err != nil || string(text) != "secret" {
		t.Errorf("what lies outside is now %q, %v", text, err)
	}
	if list, _ := os.ReadDir(around); len(list) != 2 {
		t.Errorf("outside there is now %v", list)
	}
	return dir, err
}

func TestWhatIsWrittenUnpacksAsItWasWithoutSetuid(t *testing.T) {
	dir := plant(t)
	data := write(t, dir)
	got, err := unpack(t, data, UnpackOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "run.sh"), 0o750); err != nil {
		t.Fatal(err)
	}
	if want := listing(t, dir); listing(t, got) != want {
		t.Errorf("unpacked:\n%s\nwant:\n%s", listing(t, got), want)
	}
}

func TestTarReadsWhatIsWrittenAndItsArchivesUnpack(t *testing.T) {
	dir := plant(t)
	into := t.TempDir()
	cmd := exec.Command("tar", "-xpof", "-")
	cmd.Dir, cmd.Stdin = into, bytes.NewReader(write(t, dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Chmod(filepath.Join(dir, "run.sh"), 0o750); err != nil {
		t.Fatal(err)
	}
	want := listing(t, dir)
	if got := listing(t, into); got != want {
		t.Errorf("tar made:\n%s\nwant:\n%s", got, want)
	}
	if err := os.Link(filepath.Join(dir, "-dash"), filepath.Join(dir, "empty", "second")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "empty"), time.Time{}, time.Unix(1_700_000_000, 0)); err != nil {
		t.Fatal(err)
	}
	want = listing(t, dir)
	cmd = exec.Command("tar", "-cf", "-", ".")
	cmd.Dir = dir
	data, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := unpack(t, data, UnpackOptions{})
	if err != nil || listing(t, got) != want {
		t.Errorf("%v; unpacked:\n%s\nwant:\n%s", err, listing(t, got), want)
	}
}

func TestTwoWritesAreEqualAndAChangeIsSeen(t *testing.T) {
	dir := plant(t)
	first := write(t, dir)
	if !bytes.Equal(first, write(t, dir)) {
		t.Error("two writes of one directory differ")
	}
	if err := os.Chmod(filepath.Join(dir, "-dash"), 0o600); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(first, write(t, dir)) {
		t.Error("another mode makes no difference")
	}
}

func TestWhatNoArchiveHoldsIsTold(t *testing.T) {
	dir := plant(t)
	if err := syscall.Mkfifo(filepath.Join(dir, "a", "pipe"), 0o600); err != nil {
		t.Skip(err)
	}
	var skipped []string
	var b bytes.Buffer
	if err := Write(t.Context(), &b, dir, func(path string) { skipped = append(skipped, path) }); err != nil {
		t.Fatal(err)
	}
	if len(skipped) != 1 || skipped[0] != "a/pipe" {
		t.Errorf("skipped %q", skipped)
	}
}

// made is an archive of members; a file's text is its name.
func made(t *testing.T, members ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range members {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		h.Mode |= 0o700
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(h.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name string) tar.Header { return tar.Header{Name: name} }

func link(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}

func hard(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
}

func folder(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name} }

func TestAnArchiveThatLeavesItsDestinationIsRefused(t *testing.T) {
	for name, members := range map[string][]tar.Header{
		"dots":                           {file("../outside")},
		"dots behind a name":             {file("a/../../outside")},
		"dots that come back":            {file("../into/x")},
		"absolute":                       {file("/tmp/outside")},
		"the destination as a link":      {link("./", "..")},
		"the destination as a file":      {file(".")},
		"through a link":                 {link("a", ".."), file("a/outside")},
		"through a link in the middle":   {folder("d"), link("d/a", "../.."), file("d/a/x")},
		"through a link that stays":      {folder("d"), link("a", "d"), file("a/x")},
		"over a link":                    {link("outside", "../outside"), file("outside")},
		"over a harmless link":           {folder("d"), link("x", "d"), file("x")},
		"a folder over a link":           {link("x", "d"), folder("x")},
		"link to the root":               {link("a", "/")},
		"link above":                     {folder("d"), link("d/a", "../../outside")},
		"link above by a link":           {folder("d"), folder("d/e"), link("d/e/l", "../../t"), link("m", "d/e/l/../../outside")},
		"link to nothing":                {link("a", "")},
		"hard link above":                {hard("a", "../outside")},
		"hard link to an absolute name":  {hard("a", "/etc/passwd")},
		"hard link through a link":       {folder("d"), file("d/x"), link("l", "d"), hard("a", "l/x")},
		"hard link to a link":            {file("t"), link("l", "t"), hard("a", "l")},
		"hard link to what is not there": {hard("a", "b")},
		"twice":                          {file("x"), file("x")},
		"below a file":                   {file("x"), file("x/y")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := unpack(t, made(t, members...), UnpackOptions{})
			var escape *EscapeError
			if !errors.As(err, &escape) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNothingGoesThroughAnOutsideLinkThatIsAllowed(t *testing.T) {
	o := UnpackOptions{OutsideLinks: true}
	dir, err := unpack(t, made(t, link("a", "../outside"), link("b", "/etc")), o)
	if target, _ := os.Readlink(filepath.Join(dir, "a")); err != nil || target != "../outside" {
		t.Errorf("link to %q, %v", target, err)
	}
	for _, members := range [][]tar.Header{{link("a", ".."), file("a/outside")}, {link("a", "../outside"), file("a")}, {link("a", ".."), hard("x", "a/outside")}} {
		if _, err := unpack(t, made(t, members...), o); err == nil {
			t.Errorf("%v is let in", members)
		}
	}
}

func TestAnArchiveCannotSayThatItHoldsMoreThanItsLength(t *testing.T) {
	data := made(t, file("x"))
	if _, err := unpack(t, data, UnpackOptions{Most: 1}); err != nil {
		t.Error(err)
	}
	if _, err := unpack(t, made(t, file("xx")), UnpackOptions{Most: 1}); err == nil || !strings.Contains(err.Error(), "longer than itself") {
		t.Error(err)
	}
	if _, err := unpack(t, data[:512], UnpackOptions{}); err == nil {
		t.Error("a cut archive is taken for a whole one")
	}
}

func FuzzUnpackWritesNothingOutside(f *testing.F) {
	f.Add([]byte("../outside\x00a\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var members []tar.Header
		for i, part := range bytes.Split(data, []byte{0}) {
			name, target, _ := strings.Cut(string(part), "|")
			kind := []byte{tar.TypeReg, tar.TypeSymlink, tar.TypeLink, tar.TypeDir}[(i+len(part))%4]
			members = append(members, tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o700})
			if len(members) == 8 {
				break
			}
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range members {
			if w.WriteHeader(&h) != nil {
				return
			}
		}
		w.Close()
		_, _ = unpack(t, b.Bytes(), UnpackOptions{OutsideLinks: len(data)%2 == 0})
	})
}
