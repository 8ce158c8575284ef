package sdnotify

import (
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// supervisor listens where a service would send to.
func supervisor(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func heard(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestTheSupervisorHearsByPathAndByAbstractName(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@rcd-test-" + rand.Text()} {
		conn := supervisor(t, name)
		t.Setenv(socketName, name)
		n, err := FromEnvironment()
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Send(Ready, Status("3 jobs\non 2 devices")); err != nil {
			t.Fatal(err)
		}
		if got := heard(t, conn); got != "READY=1\nSTATUS=3 jobs on 2 devices" {
			t.Errorf("heard %q", got)
		}
		if err := n.Send(Reloading()); err != nil {
			t.Fatal(err)
		}
		first, second, _ := strings.Cut(heard(t, conn), "\n")
		if us, err := strconv.ParseInt(strings.TrimPrefix(second, "MONOTONIC_USEC="), 10, 64); first != "RELOADING=1" || err != nil || us <= 0 {
			t.Errorf("heard %q and %q", first, second)
		}
	}
}

func TestNoChildLearnsWhereTheSupervisorListens(t *testing.T) {
	t.Setenv(socketName, "@x")
	t.Setenv(watchdogName, "1000000")
	t.Setenv(watchdogPIDName, strconv.Itoa(os.Getpid()))
	n, err := FromEnvironment()
	if err != nil || n.Watchdog() != time.Second {
		t.Errorf("watchdog %v, %v", n.Watchdog(), err)
	}
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, "NOTIFY_") || strings.HasPrefix(entry, "WATCHDOG_") {
			t.Errorf("%s is left", entry)
		}
	}
}

func TestAWatchdogOfAnotherProcessIsNotOurs(t *testing.T) {
	t.Setenv(socketName, "@x")
	t.Setenv(watchdogName, "1000000")
	t.Setenv(watchdogPIDName, "1")
	if n, err := FromEnvironment(); err != nil || n.Watchdog() != 0 {
		t.Errorf("watchdog %v, %v", n.Watchdog(), err)
	}
}

func TestWithoutASupervisorNothingIsSaid(t *testing.T) {
	t.Setenv(socketName, "")
	n, err := FromEnvironment()
	if n != nil || err != nil {
		t.Fatalf("%v, %v", n, err)
	}
	if err := n.Send(Ready); err != nil || n.Watchdog() != 0 {
		t.Errorf("%v, %v", err, n.Watchdog())
	}
	t.Setenv(socketName, "vsock:2:1")
	if n, err := FromEnvironment(); n != nil || err == nil {
		t.Errorf("an address that is not known: %v, %v", n, err)
	}
	t.Setenv(socketName, filepath.Join(t.TempDir(), "nobody"))
	if n, err := FromEnvironment(); err != nil || n.Send(Ready) == nil {
		t.Error("a supervisor that is gone goes unnoticed")
	}
}
