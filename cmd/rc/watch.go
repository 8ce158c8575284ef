package main

import (
	"bytes"
	"io"
	"os"
	"time"

	"rcd/client"
)

// watching is the --watch of a listing verb.
type watching struct {
	Watch bool `short:"w" help:"Print again whenever something has changed, until Ctrl-C."`
}

// watchPause lies between two looks at a cluster whose controllers do not hold a
// read back until something has changed.
const watchPause = 2 * time.Second

// look reads what is to be shown, held back as since says, and returns how to
// print it and the index to go on from, 0 of a controller that holds nothing
// back.
type look func(since client.Since) (show func(io.Writer) error, index uint64, err error)

// show prints what a look finds: once, or each time that it is another. A
// terminal shows the latest; elsewhere a blank line comes before each but the
// first, except in formats for programs, where one document follows the other.
func (v watching) show(a *app, what, output string, look look) error {
	var since client.Since
	var last []byte
	for {
		show, index, err := look(since)
		if err != nil {
			if v.Watch && a.interrupted() {
				return a.onlyWatched(what)
			}
			return err
		}
		var now bytes.Buffer
		if err := show(&now); err != nil {
			return err
		}
		if last == nil || !bytes.Equal(last, now.Bytes()) {
			if _, err := a.stdout.Write(append(v.before(a, output, last == nil), now.Bytes()...)); err != nil {
				return err
			}
		}
		if !v.Watch {
			return nil
		}
		last = now.Bytes()
		if since.Index = index; index != 0 {
			continue
		}
		select {
		case <-time.After(watchPause):
		case <-a.ctx.Done():
			return a.onlyWatched(what)
		}
	}
}

// before is what goes ahead of a print.
func (v watching) before(a *app, output string, first bool) []byte {
	switch {
	case !v.Watch || output != formatTable && output != formatText && output != formatWide:
		return nil
	case onTerminal(a.stdout):
		return []byte("\x1b[H\x1b[2J") // home, and clear
	case first:
		return nil
	}
	return []byte("\n")
}

// onTerminal reports whether w is a terminal.
func onTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && isTerminal(int(file.Fd()))
}
