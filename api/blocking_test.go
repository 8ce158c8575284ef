package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// later is what a read that waits answered, and after how long.
type later struct {
	status int
	raw    string
	index  uint64
	took   time.Duration
}

// waits sends a read whose answer comes later.
func (n *node) waits(path string) <-chan later {
	out := make(chan later, 1)
	began := time.Now()
	go func() {
		resp, err := n.try(context.Background(), "GET", path, clientToken, "")
		if err != nil {
			out <- later{raw: err.Error()}
			return
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		index, _ := strconv.ParseUint(resp.Header.Get(wire.HeaderIndex), 10, 64)
		out <- later{resp.StatusCode, string(raw), index, time.Since(began)}
	}()
	return out
}

func (c *cluster) at() string { return strconv.FormatUint(c.machine.Index(), 10) }

// changeLabels changes what is known of one device of another host.
func (c *cluster) changeLabels(value string) {
	c.t.Helper()
	c.must(&command.LabelsReplace{Host: "shelf", Instance: "agent-2", Source: model.Detected, Sets: []command.DeviceLabels{
		{Name: "gpu0", Labels: []command.KV{{Key: "temperature", Value: value}}},
	}})
}

func (c *cluster) registerShelf() {
	c.t.Helper()
	c.must(&command.AgentRegister{
		Host: "shelf", MachineID: "other machine", BootID: "boot", Instance: "agent-2",
		Devices: []command.DeviceSpec{{Name: "gpu0"}}, Proof: command.Proof{SurvivorsChecked: true},
	})
}

// TestAWaitingReadAnswersWhenItsOwnSubjectChanges asks every route that waits,
// on a follower, and lets something happen that is none of its business, then
// something that is.
func TestAWaitingReadAnswersWhenItsOwnSubjectChanges(t *testing.T) {
	submit := func(c *cluster) { c.nodes["c1"].submit(submitTrue) }
	labels := func(c *cluster) { c.changeLabels("70") }
	nothing := func(c *cluster) { c.must(&command.JobPrune{Limit: 1}) }
	start := func(c *cluster) { c.start(1) }
	for _, test := range []struct {
		path      string
		unrelated []func(*cluster)
		related   func(*cluster)
	}{
		{"/v1/jobs/j-1", []func(*cluster){nothing, submit, labels}, start},
		{"/v1/jobs", []func(*cluster){nothing, labels}, start},
		{"/v1/jobs?submitter=bob@box", []func(*cluster){nothing, labels, submit}, func(c *cluster) {
			c.nodes["c1"].submit(`{"selector":"rack=r3","command":["true"],"submitter":"bob@box"}`)
		}},
		{"/v1/devices", []func(*cluster){nothing, start}, labels},
		{"/v1/state", []func(*cluster){nothing}, labels},
		{"/v1/devices/shelf:gpu0/describe", []func(*cluster){nothing, submit, start}, labels},
		{"/v1/devices/box:gpu0/describe", []func(*cluster){nothing, labels}, start},
	} {
		t.Run(test.path, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				c.registerShelf()
				c.nodes["c1"].submit(`{"device_id":"box:gpu0","command":["true"],"submitter":"ann@box"}`)
				path := test.path + "?"
				if test.path == "/v1/jobs?submitter=bob@box" {
					path = test.path + "&"
				}
				answer := c.nodes["c2"].waits(path + "index=" + c.at() + "&wait=2m")
				for _, f := range test.unrelated {
					time.Sleep(time.Second)
					f(c)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				select {
				case got := <-answer:
					t.Fatalf("answered to what does not concern it: %+v", got)
				default:
				}
				test.related(c)
				want := c.machine.Index()
				got := <-answer
				if got.status != 200 || got.index < want {
					t.Fatalf("got %+v, want index %d", got, want)
				}
				if late := got.took - time.Duration(len(test.unrelated)+1)*time.Second; late > lookPause {
					t.Errorf("answered %v after the change", late)
				}
			})
		})
	}
}

func TestAWaitingReadThatIsBehindAnswersAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		index := c.at()
		c.nodes["c1"].submit(submitTrue)
		for path, longest := range map[string]time.Duration{"/v1/jobs/j-1": 0, "/v1/jobs": listSettle, "/v1/state": listSettle} {
			if got := <-c.nodes["c3"].waits(path + "?wait=1m&index=" + index); got.status != 200 || got.took > longest {
				t.Errorf("%s: %+v", path, got)
			}
		}
		// Nor is there anything to wait for above an index that the cluster has
		// not come to.
		if got := <-c.nodes["c3"].waits("/v1/jobs?index=100000"); got.status != 200 || got.took != 0 {
			t.Errorf("%+v", got)
		}
		if got := <-c.nodes["c3"].waits("/v1/jobs?index=0&wait=1m"); got.status != 200 || got.took != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestAWaitEndsWithinItsJitter(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].submit(submitTrue)
		for query, wait := range map[string]time.Duration{"": defaultWait, "&wait=10s": 10 * time.Second, "&wait=1h": maxWait} {
			got := <-c.nodes["c2"].waits("/v1/jobs/j-1?index=" + c.at() + query)
			if got.status != 200 || got.took < wait || got.took > wait+wait/waitJitter || fmt.Sprint(got.index) != c.at() {
				t.Errorf("%q: %+v", query, got)
			}
		}
	})
}

// The place of a queued job moves with others; a busy queue must not make a
// waiting read a busy one.
func TestAQueuedJobsReadAnswersAtMostOnceASecondWhenOthersMove(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].submit(`{"device_id":"box:gpu0","command":["true"],"submitter":"ann@box"}`)
		c.nodes["c1"].submit(`{"device_id":"box:gpu0","command":["true"],"submitter":"ann@box"}`)
		ctx, cancel := context.WithCancel(context.Background())
		busy := make(chan struct{})
		go func() {
			defer close(busy)
			for ctx.Err() == nil {
				c.nodes["c1"].submit(`{"device_id":"box:gpu0","command":["true"],"submitter":"ann@box"}`)
				time.Sleep(20 * time.Millisecond)
			}
		}()
		index, answers, began := c.machine.Index(), 0, time.Now()
		for ; time.Since(began) < 10*time.Second; answers++ {
			got := <-c.nodes["c2"].waits("/v1/jobs/j-2?wait=1m&index=" + fmt.Sprint(index))
			index = got.index
		}
		if answers > 11 {
			t.Errorf("%d answers in 10 s", answers)
		}
		// Its own changes are told at once all the same.
		waiting := c.nodes["c2"].waits("/v1/jobs/j-2?wait=1m&index=" + fmt.Sprint(index))
		time.Sleep(300 * time.Millisecond)
		if resp, raw := c.nodes["c1"].do("POST", "/v1/jobs/j-2/kill", clientToken, `{"submitter":"ann@box"}`); resp.StatusCode != 200 {
			t.Fatal(raw)
		}
		if got := <-waiting; decode[wire.JobView](t, got.raw).Job.State != "killed" || got.took > 300*time.Millisecond {
			t.Errorf("%+v", got)
		}
		cancel()
		<-busy
	})
}

// A wait outlives the leader; a node that has lost the cluster does not let its
// readers wait for news that cannot come.
func TestAWaitSurvivesAChangeOfLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].submit(submitTrue)
		waiting := c.nodes["c2"].waits("/v1/jobs/j-1?wait=1m&index=" + c.at())
		time.Sleep(time.Second)
		c.lead("")
		time.Sleep(2 * time.Second)
		c.lead("c3")
		time.Sleep(time.Second)
		c.start(1)
		if got := <-waiting; got.status != 200 || decode[wire.JobView](t, got.raw).Job.State != "running" || got.took != 4*time.Second {
			t.Fatalf("%+v", got)
		}
		waiting = c.nodes["c2"].waits("/v1/jobs/j-1?wait=1m&index=" + c.at())
		time.Sleep(time.Second)
		c.lead("")
		if got := <-waiting; got.status != http.StatusServiceUnavailable || got.took > contactCheck+requestDeadline {
			t.Fatalf("%+v", got)
		}
	})
}

func TestWaitRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		for _, path := range []string{
			"/v1/jobs?wait=5s", "/v1/jobs?index=1&wait=soon", "/v1/jobs?index=1&wait=-1s", "/v1/jobs?index=-1", "/v1/jobs?index=%2B1", "/v1/devices?index=x",
		} {
			resp, raw := c.nodes["c2"].do("GET", path, clientToken, "")
			wantError(t, resp, raw, 400, "bad_request")
		}
		resp, raw := c.nodes["c2"].do("GET", "/v1/jobs/j-9?index="+c.at(), clientToken, "")
		wantError(t, resp, raw, 404, "not_found")
		resp, raw = c.nodes["c2"].do("GET", "/v1/devices/box:gpu9/describe?index="+c.at(), clientToken, "")
		wantError(t, resp, raw, 404, "not_found")
	})
}

func TestWaitingReadsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{}, maxWaiters)
		for range maxWaiters {
			go func() {
				defer func() { ended <- struct{}{} }()
				if resp, err := c.nodes["c2"].try(ctx, "GET", "/v1/jobs?index="+c.at(), clientToken, ""); err == nil {
					resp.Body.Close()
				}
			}()
		}
		synctest.Wait()
		resp, raw := c.nodes["c2"].do("GET", "/v1/jobs?wait=1s&index="+c.at(), clientToken, "")
		wantError(t, resp, raw, 503, "overloaded")
		if resp, raw := c.nodes["c2"].do("GET", "/v1/jobs", clientToken, ""); resp.StatusCode != 200 {
			t.Fatalf("a read that does not wait: %d %s", resp.StatusCode, raw)
		}
		cancel()
		for range maxWaiters {
			<-ended
		}
	})
}
