package shim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/internal/codec"
)

// protocolVersion is what this release speaks as a shim. As an agent it must speak every version that a shim still running may have; a shim's hello
// says which.
const protocolVersion = 1

// On the socket and on the report pipe go messages: length in 4 bytes, big endian, and CBOR. A shim sends hello and a status, then a status whenever
// something changed and at least every keepalive; an agent sends pings as often, kill and extend. Neither waits for an answer: that a kill was taken shows
// in the next status, that the limit was lengthened in limit.cbor, which is written before the next status. Times are Unix nanoseconds.
const (
	messageLimit = bulkChunk + 16<<10 // 16 KiB in earlier releases, which send and take no more
	reasonLimit  = 1 << 10            // of a kill reason or a problem, in bytes

	keepalive    = 10 * time.Second
	readTimeout  = 3 * keepalive
	writeTimeout = 3 * time.Second
)

// errVersion says that the other side speaks a later protocol.
var errVersion = errors.New("shim protocol of a later version")

type messageType uint8

const (
	typeHello   messageType = 1
	typeStatus  messageType = 2
	typeKill    messageType = 3
	typePing    messageType = 4
	typeRefused messageType = 5 // on the report pipe: another shim has the job, or had it
	typeFailed  messageType = 6 // on the report pipe: this shim cannot run, and the job has not begun
	typeExtend  messageType = 7 // only to a shim with a limit.cbor: an earlier one hangs up on what it does not know

	// Only for a job with a terminal or a pipe, which no shim of an earlier release has. On a connection of its own an agent opens the input with a writer's
	// number; from then on the shim sends the state of the input, at once and at each change, and no status any more.
	typeConsumed   messageType = 8
	typeOpenInput  messageType = 9
	typeInput      messageType = 10
	typeEndInput   messageType = 11
	typeResize     messageType = 12
	typeInputState messageType = 13
)

type message struct {
	Type    messageType  `cbor:"1,keyasint"`
	Hello   *helloBody   `cbor:"2,keyasint,omitempty"`
	Status  *statusBody  `cbor:"3,keyasint,omitempty"`
	Kill    *killBody    `cbor:"4,keyasint,omitempty"`
	Problem *problemBody `cbor:"5,keyasint,omitempty"`
	Extend  *extendBody  `cbor:"6,keyasint,omitempty"`

	Consumed   *consumedBody   `cbor:"7,keyasint,omitempty"`
	OpenInput  *openInputBody  `cbor:"8,keyasint,omitempty"`
	Input      *inputBody      `cbor:"9,keyasint,omitempty"`
	EndInput   *endInputBody   `cbor:"10,keyasint,omitempty"`
	Resize     *resizeBody     `cbor:"11,keyasint,omitempty"`
	InputState *inputStateBody `cbor:"12,keyasint,omitempty"`
}

type helloBody struct {
	Version uint8    `cbor:"1,keyasint"`
	JobID   string   `cbor:"2,keyasint"`
	Shim    identity `cbor:"3,keyasint"`
}

type statusBody struct {
	Phase     Phase    `cbor:"1,keyasint"`
	Job       identity `cbor:"2,keyasint"`
	StartedAt int64    `cbor:"3,keyasint"`
	Output    int64    `cbor:"4,keyasint"` // length of the output
	Killing   string   `cbor:"5,keyasint"` // why the job is being killed; empty if it is not
}

type killBody struct {
	Reason string `cbor:"1,keyasint"`
}

// extendBody lengthens the limit of the job, counted from its start. One that is not longer changes nothing.
type extendBody struct {
	MaxRuntime time.Duration `cbor:"1,keyasint"`
}

// consumedBody says how far the readers of the output have got, so that the job may say more. One that is not further changes nothing.
type consumedBody struct {
	Offset int64 `cbor:"1,keyasint"`
}

// openInputBody makes the connection one for input. A writer with a higher number takes the input over from all lower ones; one with the same number is the
// same one, come again.
type openInputBody struct {
	Writer uint64 `cbor:"1,keyasint"`
}

// inputBody is input that begins at an offset of the job's one space of input offsets. What the shim has already is passed over; a hole, or more than the
// limit allows, ends the connection.
type inputBody struct {
	Offset int64  `cbor:"1,keyasint"`
	Data   []byte `cbor:"2,keyasint"`
}

// endInputBody says that the input ends here. It says nothing to a terminal.
type endInputBody struct {
	Offset int64 `cbor:"1,keyasint"`
}

type resizeBody struct {
	Cols uint16 `cbor:"1,keyasint"`
	Rows uint16 `cbor:"2,keyasint"`
}

// Codes of an inputStateBody. After one of them the shim hangs up.
const (
	inputTaken = "taken" // there is a writer with a higher number
	inputGone  = "gone"  // nobody reads the input any more
)

type inputStateBody struct {
	Writer   uint64 `cbor:"1,keyasint"` // the highest that has come
	Accepted int64  `cbor:"2,keyasint"` // everything before it is safe with the shim: what is to be sent next
	Written  int64  `cbor:"3,keyasint"` // everything before it has been written to the process
	Limit    int64  `cbor:"4,keyasint"` // nothing may be sent at or behind this offset yet
	Ended    bool   `cbor:"5,keyasint"` // the end has been taken
	Code     string `cbor:"6,keyasint,omitempty"`
}

type problemBody struct {
	Text string `cbor:"1,keyasint"`
	// Cause is left out if it is the agent's. An agent of an earlier release that does not know it takes the shim for one that ended without a word: the
	// job does not start either way.
	Cause Cause `cbor:"2,keyasint,omitempty"`
}

// Phase is where a job stands.
type Phase uint8

// The phases. Numbers go over the socket.
const (
	Starting Phase = 1 // the shim is being started
	Running  Phase = 2
	Ended    Phase = 3 // the result is on disk
)

func (p Phase) String() string {
	switch p {
	case Starting:
		return "starting"
	case Running:
		return "running"
	case Ended:
		return "ended"
	}
	return "phase " + strconv.Itoa(int(p))
}

// Status is what is known of a job at a moment.
type Status struct {
	Phase     Phase
	Job       proc.ID   // the main process; zero for a hold, and before it runs
	StartedAt time.Time // zero before it runs
	Output    int64     // length of the output so far
	Killing   string    // why the shim is killing it; empty if it is not
}

func (s Status) body() *statusBody {
	return &statusBody{Phase: s.Phase, Job: identityOf(s.Job), StartedAt: wallNS(s.StartedAt), Output: s.Output, Killing: s.Killing}
}

func (b statusBody) status() Status {
	return Status{Phase: b.Phase, Job: b.Job.id(), StartedAt: wallTime(b.StartedAt), Output: b.Output, Killing: b.Killing}
}

func send(conn net.Conn, m message) error {
	if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return codec.WriteMessage(conn, m, messageLimit)
}

func receive(conn net.Conn) (message, error) {
	if err := conn.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return message{}, err
	}
	var m message
	err := codec.ReadMessage(conn, &m, messageLimit)
	return m, err
}

// A socket's path has 107 bytes at most, and a job's directory may be deeper than that: both sides name it through a descriptor of the directory.
func socketPath(dir string) (path string, done func(), err error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("open %q: %w", dir, err)
	}
	return filepath.Join("/proc/self/fd", strconv.Itoa(fd), socketName), func() { _ = unix.Close(fd) }, nil
}

func listen(dir string) (*net.UnixListener, error) {
	path, done, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	// Only the holder of the lock comes here, so a socket that is there was left by a dead shim.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the path means nothing once the descriptor is closed
	return l, nil
}

func dial(dir string) (net.Conn, error) {
	path, done, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	return net.DialTimeout("unix", path, writeTimeout)
}

// clip bounds a text from outside.
func clip(text string) string {
	if len(text) <= reasonLimit {
		return text
	}
	cut := reasonLimit
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut-- // not inside a rune
	}
	return text[:cut]
}
