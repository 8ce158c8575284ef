package session

import (
	"fmt"
	"net"
	"sync"
	"time"

	"rcd/internal/codec"
	"rcd/wire"
)

// The pace of a control session, the same on both sides.
const (
	// HeartbeatEvery is how often an agent speaks. DESIGN fixes it: with a read
	// deadline of 5 s, one lost beat is no loss.
	HeartbeatEvery = 2 * time.Second
	// readDeadline is how long either side waits for the other's next message.
	readDeadline = 5 * time.Second
	// writeDeadline is how long one message may take to go out.
	writeDeadline = 3 * time.Second
	// helloTimeout bounds the first message of a connection.
	helloTimeout = 5 * time.Second
)

// messages is one stream of agent messages. receive is for one goroutine, send
// for any number.
type messages struct {
	conn net.Conn
	mu   sync.Mutex // guards writes
}

// receive returns the next message, or an error after which the stream is of
// no use; silence for longer than limit is one.
func (m *messages) receive(limit time.Duration) (wire.AgentMessage, error) {
	var msg wire.AgentMessage
	if err := m.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return msg, err
	}
	err := codec.ReadMessage(m.conn, &msg, wire.MaxAgentMessage)
	return msg, err
}

// send returns once the message has gone out; after an error the stream is of
// no use.
func (m *messages) send(msg wire.AgentMessage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.conn.SetWriteDeadline(time.Now().Add(writeDeadline)); err != nil {
		return err
	}
	if err := codec.WriteMessage(m.conn, msg, wire.MaxAgentMessage); err != nil {
		return fmt.Errorf("send %s: %w", describe(msg), err)
	}
	return nil
}

func describe(msg wire.AgentMessage) string {
	switch {
	case msg.Hello != nil:
		return "hello"
	case msg.Welcome != nil:
		return "welcome"
	case msg.Redirect != nil:
		return "redirect"
	case msg.Heartbeat != nil:
		return "heartbeat"
	case msg.HeartbeatAck != nil:
		return "heartbeat ack"
	case msg.Order != nil:
		return "order"
	case msg.OrderAck != nil:
		return "order ack"
	case msg.Started != nil:
		return "started"
	case msg.Outcome != nil:
		return "outcome"
	case msg.OutcomeAck != nil:
		return "outcome ack"
	case msg.Refused != nil:
		return "refusal"
	case msg.Facts != nil:
		return "facts"
	case msg.FactsAck != nil:
		return "facts ack"
	case msg.Fault != nil:
		return "fault"
	case msg.FaultAck != nil:
		return "fault ack"
	case msg.BytesHello != nil:
		return "bytes hello"
	}
	return "message"
}
