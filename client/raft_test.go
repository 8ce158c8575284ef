package client

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"rcd/wire"
)

func inNone(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/raft/status" {
		answerJSON(w, 200, wire.RaftStatus{Node: "c2", Waiting: "waiting for c1"})
		return
	}
	answerError(w, 503, "not_in_cluster")
}

func TestANodeInNoClusterIsPassedOver(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", inNone)
		n.serve(t, "b:1", "c2", inNone)
		n.serve(t, "c:1", "c3", func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			if strings.HasSuffix(r.URL.Path, "peers") {
				answerJSON(w, 200, wire.RaftPeers{Peers: []wire.RaftPeer{{ID: "c3"}}})
			} else {
				answerJSON(w, 200, wire.RaftLog{Node: "c3", Last: 7})
			}
		})
		c, _ := n.client(t, Options{})
		if peers, err := c.RaftPeers(t.Context(), ""); err != nil || len(peers) != 1 || peers[0].ID != "c3" {
			t.Fatalf("%v %v", peers, err)
		}
		c, _ = n.client(t, Options{})
		if log, err := c.RaftLog(t.Context(), "", 0, 0); err != nil || log.Node != "c3" {
			t.Fatalf("%v %v", log, err)
		}
	})
}

func TestNodesThatAreAllInNoClusterAreNotWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", inNone)
		n.serve(t, "b:1", "c2", inNone) // nothing at c:1
		c, _ := n.client(t, Options{})
		begun := time.Now()
		_, err := c.RaftPeers(t.Context(), "")
		within(t, begun, 0)
		want := "not_in_cluster: no controller that answers is in a cluster\n" +
			"  http://a:1: not_in_cluster: text of not_in_cluster\n" +
			"  http://b:1: not_in_cluster: text of not_in_cluster\n" +
			"  http://c:1: connection refused\n" +
			"Start what each of them waits for, and look again. One controller's own view: rc raft status --node ID"
		if !errors.Is(err, ErrUnreachable) || err.Error() != want {
			t.Fatalf("got\n%v\nwant\n%s", err, want)
		}
	})
}

func TestTheRefusalOfANamedNodeIsShownAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "b:1", "c2", inNone)
		c, _ := n.client(t, Options{})
		for _, name := range []string{"b:1", "c2"} {
			begun := time.Now()
			_, err := c.RaftPeers(t.Context(), name)
			wantCode(t, err, 503, "not_in_cluster")
			if _, ok := errors.AsType[*OutageError](err); ok {
				t.Errorf("%s: an outage: %v", name, err)
			}
			if name == "b:1" {
				within(t, begun, 0)
			}
			within(t, begun, lookupPatience)
		}
	})
}
