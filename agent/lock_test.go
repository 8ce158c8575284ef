package agent

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An agent that is killed in the middle of a fork leaves a child that has all
// its descriptors until it becomes a shim.
func TestAnAgentWaitsForWhatAKilledOneHasForked(t *testing.T) {
	dir := t.TempDir()
	kept, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(kept.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "0.2")
	child.ExtraFiles = []*os.File{kept}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	kept.Close()
	release, err := lockDir(dir, testLog(t))
	if err != nil {
		t.Fatalf("the lock was an orphan's: %v", err)
	}
	release()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}

// The same for the name of the host. The socket says who listened, so a process
// of its own has to.
func TestAnAgentWaitsForTheHostNameOfAKilledOne(t *testing.T) {
	owner := exec.Command(executable(t), "hold-host", "box", token)
	stdout, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_ = owner.Process.Kill() // alive: it waits for its child
	_ = owner.Wait()
	release, err := lockHost("box", token)
	if err != nil {
		t.Fatalf("the name was an orphan's: %v", err)
	}
	release()
}

// holdHost takes the name of a host, hands it to a child that lives on for a
// moment, and waits to be killed.
func holdHost(host, token string) {
	listener, err := net.ListenUnix("unix", hostAddr(host, token))
	if err != nil {
		panic(err)
	}
	socket, err := listener.File()
	if err != nil {
		panic(err)
	}
	child := exec.Command("sleep", "0.5")
	child.ExtraFiles = []*os.File{socket}
	if err := child.Start(); err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write([]byte("."))
	select {}
}
