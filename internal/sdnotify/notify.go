package sdnotify

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The variables in which a supervisor says what it wants to hear.
const (
	socketName      = "NOTIFY_SOCKET"
	watchdogName    = "WATCHDOG_USEC"
	watchdogPIDName = "WATCHDOG_PID"
)

// sendTimeout bounds one datagram: a supervisor that does not read must not
// hold up who tells it.
const sendTimeout = time.Second

// A State is one line of a notification.
type State string

// What can be said without a value.
const (
	Ready    State = "READY=1"    // started, or reloaded
	Stopping State = "STOPPING=1" // on the way to the end
	Alive    State = "WATCHDOG=1" // still at work
)

// Status is a line for people; line breaks in it become spaces.
func Status(text string) State {
	return State("STATUS=" + strings.Join(strings.Fields(text), " "))
}

// Reloading says that the configuration is being read again, now. Ready must
// follow.
func Reloading() State {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "RELOADING=1"
	}
	return State(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/int64(time.Microsecond)))
}

// Notifier speaks to one supervisor. A nil one has none and says nothing. Safe
// for concurrent use.
type Notifier struct {
	addr     net.UnixAddr
	watchdog time.Duration
}

// FromEnvironment returns the notifier for the supervisor that the environment
// names, nil if it names none, and takes its variables out of the environment.
// An error says that it names one in a way that is not known; nothing can be
// said then.
func FromEnvironment() (*Notifier, error) {
	socket, watchdog, pid := os.Getenv(socketName), os.Getenv(watchdogName), os.Getenv(watchdogPIDName)
	for _, name := range []string{socketName, watchdogName, watchdogPIDName} {
		if err := os.Unsetenv(name); err != nil {
			return nil, fmt.Errorf("unset %s: %w", name, err)
		}
	}
	switch {
	case socket == "":
		return nil, nil
	case len(socket) < 2 || socket[0] != '/' && socket[0] != '@':
		return nil, fmt.Errorf("%s is %q, neither a path nor an abstract socket", socketName, socket)
	}
	n := &Notifier{addr: net.UnixAddr{Name: socket, Net: "unixgram"}} // net makes a leading @ the abstract one
	if us, err := strconv.ParseInt(watchdog, 10, 64); err == nil && us > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.watchdog = time.Duration(us) * time.Microsecond
	}
	return n, nil
}

// Watchdog returns how long the supervisor waits for the next Alive before it
// ends the process, 0 if it does not.
func (n *Notifier) Watchdog() time.Duration {
	if n == nil {
		return 0
	}
	return n.watchdog
}

// Send says all states in one datagram. The error says that the supervisor has
// not heard them; it is nothing to end for.
func (n *Notifier) Send(states ...State) error {
	if n == nil || len(states) == 0 {
		return nil
	}
	lines := make([]string, len(states))
	for i, s := range states {
		lines[i] = string(s)
	}
	conn, err := net.DialUnix("unixgram", nil, &n.addr)
	if err != nil {
		return fmt.Errorf("reach the supervisor at %q: %w", n.addr.Name, err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("tell the supervisor: %w", err)
	}
	return nil
}
