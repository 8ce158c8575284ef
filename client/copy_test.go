package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rcd/client"
	"rcd/internal/archive"
	"rcd/jepsen/onehost"
)

// between is a client, a host whose jobs begin in an empty directory, and an
// empty directory here.
type between struct {
	t     *testing.T
	c     *client.Client
	host  *onehost.Host
	here  string
	mu    sync.Mutex
	notes []string
}

func newBetween(t *testing.T) *between {
	t.Helper()
	h := onehost.New(t)
	c, err := client.New(client.Options{Controllers: []string{h.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &between{t: t, c: c, host: h, here: t.TempDir()}
}

func (b *between) options(local, remote string) client.CopyOptions {
	return client.CopyOptions{DeviceID: onehost.Device, Submitter: "ann", Local: local, Remote: remote, Note: func(line string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.notes = append(b.notes, line)
	}}
}

func (b *between) up(local, remote string) client.CopyResult {
	b.t.Helper()
	r, err := b.c.CopyTo(b.t.Context(), b.options(filepath.Join(b.here, local), remote))
	if err != nil {
		b.t.Fatalf("up %s to %s: %v", local, remote, err)
	}
	return r
}

// down takes local as it is, below b.here.
func (b *between) down(remote, local string) client.CopyResult {
	b.t.Helper()
	r, err := b.c.CopyFrom(b.t.Context(), b.options(b.here+"/"+local, remote))
	if err != nil {
		b.t.Fatalf("down %s to %s: %v", remote, local, err)
	}
	return r
}

func (b *between) there(path string) string { return filepath.Join(b.host.Home, path) }

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// tree makes a directory with some of everything.
func tree(t *testing.T, dir string) {
	t.Helper()
	write(t, dir+"/run", "#!/bin/sh", 0o751)
	write(t, dir+"/sub dir/deep/x", "x", 0o604)
	write(t, dir+"/.hidden", "h", 0o640)
	write(t, dir+"/-e", "dash", 0o644)
	for name, target := range map[string]string{"sub dir/up": "../run", "dangling": "nowhere"} {
		if err := os.Symlink(target, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/empty", 0o711); err != nil {
		t.Fatal(err)
	}
}

// look lists a directory: names, modes, links and texts.
func look(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link, _ := os.Readlink(path)
		text := []byte(nil)
		if info.Mode().IsRegular() {
			text, _ = os.ReadFile(path)
		}
		fmt.Fprintf(&b, "%s %s %s %.40q\n", path[len(dir)+1:], info.Mode(), link, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func same(t *testing.T, a, b string) {
	t.Helper()
	if one, two := look(t, a), look(t, b); one != two {
		t.Errorf("%s has\n%s\n%s has\n%s", a, one, b, two)
	}
}

// noise is text that does not repeat.
func noise(n int) string {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(p)
	return string(p)
}

func TestTheSlashDecidesBetweenIntoAndAs(t *testing.T) {
	b := newBetween(t)
	write(t, b.here+"/a", "text", 0o640)
	for remote, want := range map[string]string{
		"":                      "a",
		"x":                     "x",
		"in/":                   "in/a",
		"in/as":                 "in/as",
		b.there("abs") + "/":    "abs/a",
		"~/home/":               "home/a",
		"-rf/--help":            "-rf/--help",
		"it's a \"$(name)\"/;*": "it's a \"$(name)\"/;*",
	} {
		r := b.up("a", remote)
		if text, err := os.ReadFile(b.there(want)); err != nil || string(text) != "text" {
			t.Errorf("%q: %v in %q", remote, err, want)
		}
		if !strings.HasSuffix(r.Path, want) || r.Bytes != 4 {
			t.Errorf("%q: %+v", remote, r)
		}
	}
	if err := os.Mkdir(b.here+"/dir", 0o755); err != nil {
		t.Fatal(err)
	}
	for local, want := range map[string]string{"as": "as", "dir": "dir/x", "new/": "new/x", "new/er/as": "new/er/as"} {
		b.down("x", local)
		if text, err := os.ReadFile(filepath.Join(b.here, want)); err != nil || string(text) != "text" {
			t.Errorf("%q: %v", local, err)
		}
	}
	if _, err := b.c.CopyFrom(t.Context(), b.options(b.here, "/")); err == nil || !strings.Contains(err.Error(), "no name of its own") {
		t.Errorf("the root: %v", err)
	}
}

func TestATreeKeepsModesTimesAndLinksBothWays(t *testing.T) {
	b := newBetween(t)
	tree(t, b.here+"/t")
	stamp := time.Unix(1_600_000_000, 0)
	if err := os.Chtimes(b.here+"/t/run", stamp, stamp); err != nil {
		t.Fatal(err)
	}
	b.up("t", "")
	same(t, b.here+"/t", b.there("t"))
	b.down("t/", "back")
	same(t, b.here+"/t", b.here+"/back")
	b.up("t/run", "one")
	b.down("one", "one")
	for _, path := range []string{b.there("t/run"), b.here + "/back/run", b.there("one"), b.here + "/one"} {
		if info, err := os.Stat(path); err != nil || !info.ModTime().Equal(stamp) || info.Mode().Perm() != 0o751 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	b.up("t/dangling", "link")
	b.down("link", "link")
	for _, path := range []string{b.there("link"), b.here + "/link"} {
		if target, err := os.Readlink(path); target != "nowhere" {
			t.Errorf("%s leads to %q, %v", path, target, err)
		}
	}
	for _, dir := range []string{b.host.Home, b.here} {
		if left, _ := filepath.Glob(dir + "/.*rc-cp*"); left != nil {
			t.Errorf("%q is left", left)
		}
	}
}

func TestATreeOntoOneThatIsThereReplacesFilesAndKeepsTheRest(t *testing.T) {
	b := newBetween(t)
	tree(t, b.here+"/t")
	old := func(dir string) {
		write(t, dir+"/run", "old", 0o600)
		write(t, dir+"/mine", "mine", 0o600)
		write(t, dir+"/sub dir/mine", "mine", 0o600)
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	old(b.there("t"))
	b.up("t", "t")
	old(b.here + "/new/t")
	b.down("t", "new")
	for _, dir := range []string{b.there("t"), b.here + "/new/t"} {
		got := look(t, dir)
		for _, want := range []string{"run -rwxr-x--x  \"#!/bin/sh\"", "mine -rw------- ", "sub dir/mine", "sub dir/up Lrwxrwxrwx ../run", "empty drwx--x--x"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s has no %q:\n%s", dir, want, got)
			}
		}
		if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
			t.Errorf("%s is %v now", dir, info.Mode())
		}
	}
}

func TestWhatIsInTheWayStaysAndIsNamed(t *testing.T) {
	b := newBetween(t)
	tree(t, b.here+"/t")
	write(t, b.here+"/f", "f", 0o600)
	write(t, b.there("file"), "old", 0o600)
	write(t, b.there("dir/old"), "old", 0o600)
	write(t, b.there("clash/run/old"), "old", 0o600)
	write(t, b.there("clash2/empty"), "old", 0o600)
	before := look(t, b.host.Home)
	for _, tt := range []struct{ from, to, says string }{
		{"f", "dir", "dir is a directory; to copy into it write a / at its end"},
		{"t", "file", "file is no directory"},
		{"t", "clash", "clash/run is a directory; move it away"},
		{"t", "clash2", "clash2/empty is no directory; move it away"},
		{"f", "file/x", "cannot make the directory ./file"},
	} {
		_, err := b.c.CopyTo(t.Context(), b.options(b.here+"/"+tt.from, tt.to))
		var failed *client.CopyError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), tt.says) || failed.Running {
			t.Errorf("%s to %s: %v", tt.from, tt.to, err)
		}
		if failed != nil && failed.Kept != "" {
			if err := os.Remove(b.there(strings.TrimPrefix(failed.Kept, onehost.Device+":"))); err != nil {
				t.Error(err)
			}
		}
	}
	if now := look(t, b.host.Home); now != before {
		t.Errorf("now there is\n%s\nbefore\n%s", now, before)
	}
	write(t, b.here+"/t/sub dir/file/x", "", 0o600)
	write(t, b.there("late/a"), "new", 0o600)
	write(t, b.there("late/b"), "new", 0o600)
	write(t, b.here+"/in/late/a", "old", 0o600)
	write(t, b.here+"/in/late/b/x", "old", 0o600)
	before = look(t, b.here+"/in")
	for _, tt := range []struct{ from, to string }{{"file", "t/sub dir"}, {"dir", "f"}, {"late", "in"}} {
		if _, err := b.c.CopyFrom(t.Context(), b.options(b.here+"/"+tt.to, tt.from)); !errors.Is(err, client.ErrCopyTarget) {
			t.Errorf("%s to %s: %v", tt.from, tt.to, err)
		}
	}
	if now := look(t, b.here+"/in"); !strings.HasSuffix(now, before) || !strings.HasPrefix(now, ".late.rc-cp-") {
		t.Errorf("now there is\n%s\nbefore\n%s", now, before)
	}
}

func TestWhatIsNotThereIsSaid(t *testing.T) {
	b := newBetween(t)
	if _, err := b.c.CopyTo(t.Context(), b.options(b.here+"/no", "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := b.c.CopyFrom(t.Context(), b.options(b.here+"/x", "no")); !errors.Is(err, client.ErrNotFound) || !strings.Contains(err.Error(), "there is no no on box:gpu0") {
		t.Error(err)
	}
	o := b.options(b.here+"/x", "no")
	o.DeviceID = "box:gpu9"
	if _, err := b.c.CopyFrom(t.Context(), o); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(b.here); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

func TestACopyThroughManyBrokenLinksIsWhole(t *testing.T) {
	b := newBetween(t)
	text := noise(3_000_000)
	write(t, b.here+"/f", text, 0o600)
	b.host.Cut, b.host.Cuts = 200_000, 6
	if r := b.up("f", "g"); r.ResumedFrom != 0 {
		t.Errorf("%+v", r)
	}
	if b.host.Cuts != 0 {
		t.Fatalf("%d links have yet to break", b.host.Cuts)
	}
	b.host.Cuts = 6
	b.down("g", "h")
	for _, path := range []string{b.there("g"), b.here + "/h"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
	}
	if b.host.Cuts != 0 {
		t.Fatalf("%d links have yet to break", b.host.Cuts)
	}
}

// smallHost is a PATH of what a host has at least, with more programs if need
// be; of busybox if that is given.
func smallHost(t *testing.T, busybox string, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	names := []string{"sh", "ls", "cat", "tar", "mkdir", "mv", "rm", "chmod", "ln", "cksum", "tail", "head", "readlink", "sleep"}
	for _, name := range append(names, more...) {
		path, err := busybox, error(nil)
		if path == "" {
			path, err = exec.LookPath(name)
		}
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// hosts are the PATHs of hosts that have not all programs, or others.
func hosts(t *testing.T) map[string]string {
	all := map[string]string{"cksum": smallHost(t, "")}
	if path, err := exec.LookPath("busybox"); err == nil {
		all["busybox"], all["busybox with more"] = smallHost(t, path), smallHost(t, path, "sha256sum", "touch", "stat", "du")
	}
	return all
}

func TestASmallHostWillDo(t *testing.T) {
	for name, path := range hosts(t) {
		t.Run(name, func(t *testing.T) {
			b := newBetween(t)
			b.host.Path = path
			tree(t, b.here+"/t")
			write(t, b.here+"/t/big", noise(100_000), 0o600)
			b.up("t", "x/")
			same(t, b.here+"/t", b.there("x/t"))
			b.up("t", "x/t")
			same(t, b.here+"/t", b.there("x/t"))
			b.down("x/t", "y")
			same(t, b.here+"/t", b.here+"/y")
			b.up("t/big", "big")
			b.down("big", "big")
			if got, _ := os.ReadFile(b.here + "/big"); string(got) != noise(100_000) {
				t.Errorf("%d bytes", len(got))
			}
		})
	}
}

func TestNobodysArchiveLeavesItsDestination(t *testing.T) {
	b := newBetween(t)
	write(t, b.here+"/outside", "mine", 0o600)
	evil := b.there("evil.tar")
	for name, script := range map[string]string{
		"dots":                               `printf x >o; tar -P -cf evil.tar --transform 's,o,../outside,' o`,
		"absolute":                           `printf x >o; tar -P -cf evil.tar --transform "s,o,$OUT,S" o`,
		"a link":                             `ln -sfn "${OUT%/*}" l; tar -cf evil.tar l; mkdir -p d/l; printf x >d/l/outside; tar -C d -rf evil.tar l/outside`,
		"a link outside, nothing through it": `ln -sfn /etc l; tar -cf evil.tar l`,
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", script)
			cmd.Dir, cmd.Env = b.host.Home, append(os.Environ(), "OUT="+b.here+"/outside")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			b.host.Instead = func([]string) []string {
				return []string{"sh", "-c", `echo "@rc-cp tree sha256 0 0 d 0"; cat evil.tar; set -- $(sha256sum evil.tar); echo "@rc-cp sum $1" >&2`}
			}
			_, err := b.c.CopyFrom(t.Context(), b.options(b.here+"/into", "x"))
			var escape *archive.EscapeError
			if !errors.As(err, &escape) {
				t.Errorf("%v", err)
			}
			if got := look(t, b.here); got != "outside -rw-------  \"mine\"\n" {
				t.Errorf("here is now\n%s", got)
			}
		})
	}
	if err := os.Remove(evil); err != nil {
		t.Fatal(err)
	}
}

func TestAFarSideThatLiesIsNotBelieved(t *testing.T) {
	b := newBetween(t)
	write(t, b.here+"/old", "old", 0o600)
	sum := `@rc-cp sum 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881` // of x
	for name, script := range map[string]string{
		"another kind":          `echo "@rc-cp door sha256 0 1 - 0"; printf x`,
		"no first line":         `head -c 2000 /dev/zero`,
		"from nowhere":          `echo "@rc-cp file sha256 7 1 - 0"; printf x`,
		"negative":              `echo "@rc-cp file sha256 0 -1 - 0"; printf x`,
		"longer":                `echo "@rc-cp file sha256 0 1 - 0"; printf xy; echo "` + sum + `" >&2`,
		"endless":               `echo "@rc-cp file sha256 0 1 - 0"; exec cat /dev/zero`,
		"shorter":               `echo "@rc-cp file sha256 0 2 - 0"; printf x; echo "` + sum + `" >&2`,
		"another sum":           `echo "@rc-cp file sha256 0 1 - 0"; printf y; echo "` + sum + `" >&2`,
		"no sum":                `echo "@rc-cp file sha256 0 1 - 0"; printf x`,
		"nothing":               `true`,
		"only an end":           `echo "` + sum + `" >&2`,
		"words of its own":      `echo "@rc-cp dance" >&2; sleep 5`,
		"control":               `echo "@rc-cp fail $(printf '\033[31mred')" >&2`,
		"a word without an end": `head -c 100000 /dev/zero >&2`,
	} {
		b.host.Instead = func([]string) []string { return []string{"sh", "-c", script} }
		_, err := b.c.CopyFrom(t.Context(), b.options(b.here+"/old", "x"))
		var failed *client.CopyError
		if !errors.As(err, &failed) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v", name, err)
		}
		if text, _ := os.ReadFile(b.here + "/old"); string(text) != "old" {
			t.Fatalf("%s: what was there is now %q", name, text)
		}
		if failed != nil && failed.Kept != "" {
			os.Remove(failed.Kept)
		}
	}
}

func TestACopyIsNotTakenForDoneBeforeTheFarSideSaysSo(t *testing.T) {
	b := newBetween(t)
	write(t, b.here+"/f", "f", 0o600)
	for name, script := range map[string]string{
		"it ends":      `echo "@rc-cp have sha256 0 -" >&2; cat >/dev/null`,
		"two answers":  `echo "@rc-cp have sha256 0 -" >&2; echo "@rc-cp have sha256 0 -" >&2; echo "@rc-cp have sha256 0 -" >&2; cat >/dev/null; echo "@rc-cp done" >&2`,
		"other sum":    `echo "@rc-cp have md5 0 -" >&2; cat >/dev/null`,
		"done and not": `echo "@rc-cp fail no" >&2; echo "@rc-cp done" >&2`,
	} {
		b.host.Instead = func([]string) []string { return []string{"sh", "-c", script} }
		if r, err := b.c.CopyTo(context.WithoutCancel(t.Context()), b.options(b.here+"/f", "x")); err == nil && name != "two answers" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
