package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"rcd/client"
	"rcd/wire"
)

// holdIDEnv tells a command that runs while a device is held, here or inside the
// hold, which hold that is.
const holdIDEnv = "RC_HOLD_ID"

// command takes the command of this machine from the command line and returns how
// to start it, nil if there is none. With --select its first word stands where
// a device might.
func (v *holdCmd) command() (*exec.Cmd, error) {
	refuse := func(format string, args ...any) (*exec.Cmd, error) {
		return nil, &usageError{text: fmt.Sprintf(format, args...), verb: "hold"}
	}
	words := v.Command
	if v.Select != "" && v.Session && v.Device != "" {
		words, v.Device = append([]string{v.Device}, words...), ""
	}
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	switch {
	case len(words) == 0:
		return nil, nil
	case strings.HasPrefix(words[0], "-"):
		return refuse("unknown flag %s; a command that begins with - goes after --", words[0])
	case !v.Session:
		return refuse("a command here needs --session, so that the hold ends with it; on the device run it with rc exec")
	}
	cmd := exec.Command(words[0], words[1:]...)
	if cmd.Err != nil {
		return refuse("%s cannot be run here: %v", words[0], cmd.Err)
	}
	return cmd, nil
}

// during runs a command of this machine while the hold lasts, gives the device
// back when it has ended, and ends rc with its code.
func (h *holder) during(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), holdIDEnv+"="+h.job.ID, "RC_DEVICE="+h.job.DeviceID)
	if err := cmd.Start(); err != nil {
		h.release("")
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.app.ctx))
	ended, over := make(chan error, 1), make(chan *wire.Job, 1)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { ended <- cmd.Wait() })
	id := h.job.ID
	work.Go(func() {
		// Without an answer for long nobody knows; then the command's end decides.
		if job, err := h.client.WaitTerminal(ctx, id, 0); err == nil {
			over <- job
		}
	})
	interrupted := h.app.ctx.Done()
	for {
		select {
		case err := <-ended:
			h.release("")
			return h.commandEnd(err)
		case job := <-over:
			h.app.say("hold %s ended: %s; its command is told to end", id, holdEnd(job))
			_ = cmd.Process.Signal(syscall.SIGTERM)
		case <-interrupted:
			interrupted = nil
			if !isTerminal(int(os.Stdin.Fd())) { // which has told all that run on it
				_ = cmd.Process.Signal(syscall.SIGTERM)
			}
		}
	}
}

// commandEnd is the exit code of a command, as a shell has it.
func (h *holder) commandEnd(err error) error {
	var exit *exec.ExitError
	switch {
	case h.app.interrupted():
		return exitError(exitInterrupted)
	case !errors.As(err, &exit):
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitError(128 + int(status.Signal()))
	}
	return exitError(exit.ExitCode())
}

// release ends the hold and says what became of it, behind why.
func (h *holder) release(why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.app.ctx), lastLook)
	defer cancel()
	id := h.job.ID
	asked, err := h.giveUp(ctx)
	switch {
	case asked && client.Terminal(h.job) && reported(h.job):
		h.app.say("%shold %s is released", why, id)
	case asked:
		h.app.say("%s%s", why, becameOf(h.job))
	case err == nil && why == "": // that has been said
	case err == nil:
		h.app.say("%shold %s had ended: %s", why, id, holdEnd(h.job))
	default:
		until := "lasts until its time is up"
		if h.session > 0 {
			until = fmt.Sprintf("ends without rc, within %s", h.session)
		}
		h.app.say("%shold %s could not be released: %s", why, id, sentence(err))
		h.app.say("it %s. End it: rc release %s", until, id)
	}
}
