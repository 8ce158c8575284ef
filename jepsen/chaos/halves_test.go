package chaos

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// half opens one half of an attached job's streams as the ancestor's clients do.
func (c *Cluster) half(ctx context.Context, n *Node, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, n.URL+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+ClientToken)
	return http.DefaultClient.Do(req)
}

func (c *Cluster) submitAttached(t *testing.T, device, stdio, script string) string {
	t.Helper()
	status, body, err := c.Do(c.Nodes[0], "POST", "/v1/jobs", "", []byte(fmt.Sprintf(
		`{"submitter":"old@box","device_id":%q,"command":["sh","-c",%q],"stdio":%q}`, device, script, stdio)))
	var job struct {
		ID string `json:"id"`
	}
	if err != nil || status != http.StatusCreated || json.Unmarshal(body, &job) != nil {
		t.Fatalf("submit: %d %s %v", status, body, err)
	}
	return job.ID
}

// typedAhead is what the terminal shows: what is typed before stty has run is
// echoed, where it comes.
var typedAhead = regexp.MustCompile("^h?(i\r\n)?(\\^D\b\b)?ready\r\n(i\r\n)?(\\^D\b\b)?got hi\r\n31 101\r\n<nil>$")

func TestTheAncestorsHalvesOfATerminalAndAPipeWorkOnAnyNode(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 1})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	leader := c.Leader()
	var other *Node
	for _, n := range c.Nodes {
		if n != leader {
			other = n
		}
	}
	blocker := c.submitAttached(t, "box:gpu0", "pipe", "read x; sleep 0.2")
	for _, asked := range []struct{ out, in *Node }{{leader, other}, {other, leader}} {
		queued := c.submitAttached(t, "box:gpu0", "tty", "stty -echo; echo ready; while read x; do echo got $x; stty size; done")
		keys, typed := io.Pipe()
		ins := make(chan error, 1)
		go func() {
			resp, err := c.half(ctx, asked.in, "POST", "/v1/jobs/"+queued+"/tty/in", keys)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("status %s", resp.Status)
			}
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			ins <- err
		}()
		if blocker != "" { // while the job behind it is queued, both halves wait
			resp, err := c.half(ctx, leader, "POST", "/v1/jobs/"+blocker+"/tty/in", strings.NewReader("go\n"))
			if err != nil {
				t.Fatal(err)
			}
			// Whoever hangs up before the answer has ended takes back what is not
			// with the job yet.
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			blocker = ""
		}
		out, err := c.half(ctx, asked.out, "GET", "/v1/jobs/"+queued+"/tty/out", nil)
		if err != nil || out.StatusCode != http.StatusOK || out.Header.Get("Content-Type") != "application/octet-stream" {
			t.Fatalf("out: %v %v", out, err)
		}
		seen := make(chan string, 1)
		go func() {
			all, err := io.ReadAll(out.Body)
			seen <- fmt.Sprint(string(all), err)
		}()
		line := func(format string, args ...any) { fmt.Fprintf(typed, format+"\n", args...) }
		line(`{"t":"?"}`)
		line(`{"t":"r","rows":31,"cols":101}`)
		for _, key := range []string{"h", "i\n", "\x04"} {
			line(`{"t":"d","b":%q}`, base64.StdEncoding.EncodeToString([]byte(key)))
		}
		if got := <-seen; !typedAhead.MatchString(got) {
			t.Errorf("out through %s: %q", asked.out.ID, got)
		}
		typed.Close()
		if err := <-ins; err != nil {
			t.Errorf("in through %s: %v", asked.in.ID, err)
		}

		piped := c.submitAttached(t, "box:gpu0", "pipe", "exec cat")
		data := strings.Repeat("0123456789abcdef", 1<<15) // half a MiB
		go func() {
			resp, err := c.half(ctx, asked.in, "POST", "/v1/jobs/"+piped+"/tty/in", strings.NewReader(data))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			ins <- err
		}()
		if out, err = c.half(ctx, asked.out, "GET", "/v1/jobs/"+piped+"/tty/out", nil); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(out.Body); err != nil || string(got) != data {
			t.Errorf("a pipe through %s gives %d of %d bytes, %v", asked.out.ID, len(got), len(data), err)
		}
		if err := <-ins; err != nil {
			t.Error(err)
		}
	}
	logs := c.MustRC("run", "-d", "box:gpu0", "--", "true")
	for _, path := range []string{"/v1/jobs/j-1000/tty/out", "/v1/jobs/j-6/tty/out"} {
		if status, body, _ := c.Get(other, path); status != http.StatusNotFound && status != http.StatusBadRequest {
			t.Errorf("%s: %d %s%s", path, status, body, logs)
		}
	}
}
