package session

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

func echo(_ context.Context, conn net.Conn) {
	defer conn.Close()
	io.Copy(conn, conn)
}

func attached(t *testing.T, w *world) (*node, *host) {
	c1 := w.node("c1")
	w.lead(c1, 5)
	h := newHost()
	h.serve = echo
	w.agent("i1", h, "c1")
	within(t, time.Second, "attached", func() bool { return c1.contact().Attached })
	return c1, h
}

func (n *node) bulkSessions() (count int) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	for _, e := range n.hub.hosts {
		if e.bulk != nil {
			count++
		}
	}
	return count
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len(text))
	if _, err := io.ReadFull(conn, back); err != nil || string(back) != text {
		t.Fatalf("echo %q, %v", back, err)
	}
}

func TestStreamsShareOneBytesSessionOpenedOnDemand(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, _ := attached(t, w)
		if c1.bulkSessions() != 0 {
			t.Fatal("a bytes session without need")
		}
		var wait sync.WaitGroup
		for range 20 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				conn, err := c1.hub.OpenStream(context.Background(), "box")
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				say(t, conn, "hello")
			}()
		}
		wait.Wait()
		c1.mu.Lock()
		conns := len(c1.conns)
		c1.mu.Unlock()
		if conns != 2 {
			t.Errorf("%d connections, want one for control and one for bytes", conns)
		}
	})
}

func TestAnIdleBytesSessionIsClosedAndABusyOneIsNot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, _ := attached(t, w)
		conn, err := c1.hub.OpenStream(context.Background(), "box")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		say(t, conn, "still there")
		conn.Close()
		conn.Close() // counts once
		time.Sleep(50 * time.Second)
		if c1.bulkSessions() != 1 {
			t.Error("closed before a minute had passed")
		}
		time.Sleep(12 * time.Second)
		if c1.bulkSessions() != 0 {
			t.Error("an idle session is kept")
		}
		again, err := c1.hub.OpenStream(context.Background(), "box")
		if err != nil {
			t.Fatal(err)
		}
		say(t, again, "and again")
		again.Close()
	})
}

func TestOpenStreamSaysThatTheHostIsNotAttached(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		if _, err := c1.hub.OpenStream(context.Background(), "box"); !errors.Is(err, ErrNotAttached) {
			t.Errorf("got %v", err)
		}
	})
}

func TestOpenStreamGivesUpAfterThreeSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, _ := attached(t, w)
		c1.refusing(true)
		start := time.Now()
		_, err := c1.hub.OpenStream(context.Background(), "box")
		if took := time.Since(start); !errors.Is(err, ErrNoBytes) || took < 2900*time.Millisecond || took > 3100*time.Millisecond {
			t.Errorf("got %v after %v", err, took)
		}
	})
}

func TestByteStreamsEndWithTheEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, _ := attached(t, w)
		conn, err := c1.hub.OpenStream(context.Background(), "box")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c2 := w.node("c2")
		w.lead(c2, 6)
		start := time.Now()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the stream of a deposed leader goes on")
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("ended after %v", took)
		}
	})
}

func TestABytesSessionOutlivesAControlSession(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, _ := attached(t, w)
		conn, err := c1.hub.OpenStream(context.Background(), "box")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c1.mu.Lock()
		control := c1.conns[0]
		c1.mu.Unlock()
		control.Close()
		within(t, time.Second, "attached again", func() bool { return c1.hellos() == 2 && c1.contact().Attached })
		say(t, conn, "uninterrupted")
	})
}

func TestABytesSessionOfAnotherHostOrTermIsNotTaken(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, _ := attached(t, w)
		for _, hello := range []struct {
			host, instance string
			term           uint64
		}{{"other", "i1", 5}, {"box", "i0", 5}, {"box", "i1", 4}} {
			conn, err := w.dial(context.Background(), "c1", true, "box")
			if err != nil {
				t.Fatal(err)
			}
			tr, err := newTransport(conn, bulkProfile, true, quiet())
			if err != nil {
				t.Fatal(err)
			}
			if err := sayBytesHello(context.Background(), tr, bytesHello(hello.host, hello.instance, hello.term)); err != nil {
				t.Fatal(err)
			}
			select {
			case <-tr.done():
			case <-time.After(time.Second):
				t.Errorf("taken: %+v", hello)
			}
			tr.close()
		}
		if c1.bulkSessions() != 0 {
			t.Error("a session was kept")
		}
	})
}
