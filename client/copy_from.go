package client

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

//go:embed copy/from.sh
var scriptFrom string

// download is one CopyFrom.
type download struct {
	exchange
	target *target
	sums   *tally
	head   []byte // of the far side's first line, until it is whole
	what   *fetched
	sum    string // of the whole, as the far side said it at the end
	result CopyResult
}

// fetched is what the far side says of what it sends.
type fetched struct {
	kind, alg string
	from      int64 // where its bytes begin
	size      int64 // of a file; an estimate of a directory
	mode      fs.FileMode
	modified  time.Time // zero if it is not known
}

// maxHead bounds the far side's first line.
const maxHead = 512

func (d *download) run(ctx context.Context, c *Client, o CopyOptions) (CopyResult, error) {
	begun := time.Now()
	d.sums = newTally(true)
	if _, err := io.Copy(&heedful{ctx: ctx, w: d.sums}, d.target.part); err != nil {
		return d.result, err
	}
	all := d.sums.sums()
	d.exchange = exchange{client: c, CopyOptions: &o, script: scriptFrom, out: writerFunc(d.take), control: d.control,
		command: []string{"from", d.target.key, d.target.remote, strconv.FormatInt(d.sums.n, 10), all[sumSHA256], all[sumCRC]}}
	err := d.exchange.run(ctx)
	if err == nil {
		err = d.finish(ctx)
	}
	if d.job != nil {
		d.result.JobID, d.result.Hold = d.job.ID, d.hold
	}
	d.result.Path, d.result.Took = d.target.path(), time.Since(begun)
	var failed *CopyError
	if errors.As(err, &failed) {
		failed.Kept = d.target.kept()
	}
	return d.result, err
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// take takes the far side's stdout: one line of what follows, then that.
func (d *download) take(p []byte) (int, error) {
	rest := p
	if d.what == nil {
		d.head = append(d.head, p...)
		line, after, whole := bytes.Cut(d.head, []byte("\n"))
		if !whole && len(d.head) < maxHead {
			return len(p), nil
		}
		what, err := parseFetched(string(line))
		if err == nil {
			err = d.begin(what)
		}
		if err != nil {
			return 0, err
		}
		rest, d.head = after, nil
	}
	d.moved()
	if d.what.kind == copyFile && d.sums.n+int64(len(rest)) > d.what.size {
		return 0, errors.New("the far side sends more than the file has")
	}
	if _, err := d.target.part.Write(rest); err != nil {
		return 0, err
	}
	_, _ = d.sums.Write(rest)
	d.progress(CopyProgress{Step: CopyMoving, Done: d.sums.n, Total: d.what.size, Resumed: d.what.from, About: d.what.kind == copyTree})
	return len(p), nil
}

// begin takes what the far side says of what follows.
func (d *download) begin(what *fetched) error {
	switch what.from {
	case d.sums.n:
	case 0:
		if err := d.target.empty(); err != nil {
			return err
		}
		d.sums = newTally(what.alg == sumCRC)
	default:
		return errors.New("the far side goes on where nobody asked it to")
	}
	if what.alg == sumSHA256 {
		d.sums.crc = nil
	}
	d.what = what
	d.busy.Store(false)
	return nil
}

// parseFetched reads "@rc-cp KIND ALG FROM SIZE MODE MTIME".
func parseFetched(line string) (*fetched, error) {
	said, ours := strings.CutPrefix(line, controlMark)
	words := strings.Fields(said)
	if !ours || len(words) != 6 {
		return nil, fmt.Errorf("the far side begins with what no copy begins with: %.60s", printable(line))
	}
	f := &fetched{kind: words[0], alg: words[1], mode: modeOf(words[4])}
	var err [3]error
	f.from, err[0] = strconv.ParseInt(words[2], 10, 64)
	f.size, err[1] = strconv.ParseInt(words[3], 10, 64)
	if words[5] != "-" {
		var seconds int64
		seconds, err[2] = strconv.ParseInt(words[5], 10, 64)
		f.modified = time.Unix(seconds, 0)
	}
	known := f.kind == copyFile || f.kind == copyTree || f.kind == copyLink
	if errors.Join(err[:]...) != nil || f.from < 0 || f.size < 0 || !known || f.alg != sumSHA256 && f.alg != sumCRC {
		return nil, fmt.Errorf("the far side says of what it sends: %.120s", printable(line))
	}
	return f, nil
}

// modeOf reads the permissions as ls prints them.
func modeOf(text string) fs.FileMode {
	var mode fs.FileMode
	for i := 1; i < min(len(text), len("-rwxrwxrwx")); i++ {
		if c := text[i]; c == "-rwxrwxrwx"[i] || c == 's' || c == 't' {
			mode |= 1 << (9 - i)
		}
	}
	return mode
}

// control takes what the far side says.
func (d *download) control(word string, rest []string) error {
	if word == "sum" && len(rest) == 1 {
		d.sum, d.done = rest[0], true
		return nil
	}
	return fmt.Errorf("the far side says what no copy says: %s", printable(word))
}

// finish compares what has come with what was sent, and puts it in its place.
func (d *download) finish(ctx context.Context) error {
	failed := func(err error) error { return &CopyError{JobID: d.job.ID, Err: err} }
	if d.what == nil {
		return failed(errors.New("the far side has sent nothing"))
	}
	all := d.sums.sums()
	if d.what.kind == copyFile && d.sums.n != d.what.size || all[d.what.alg] != d.sum {
		_ = d.target.drop()
		return failed(errors.New("what has come is not what is there: it has changed meanwhile; copy it again"))
	}
	d.result.Bytes, d.result.ResumedFrom, d.result.SHA256 = d.sums.n, d.what.from, all[sumSHA256]
	d.progress(CopyProgress{Step: CopyEnding, Done: d.sums.n, Total: d.sums.n, Resumed: d.what.from})
	if err := d.target.commit(ctx, d.what, d.CopyOptions); err != nil {
		return failed(err)
	}
	return nil
}
