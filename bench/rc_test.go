package bench

import (
	"flag"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcd/jepsen/chaos"
	"rcd/jepsen/rig"
)

var rcRuns = flag.Int("bench.rc", 0, "how often to measure rc itself; 0 measures nothing")

// percentiles returns the durations' median and 95th percentile, as text.
func (f figures) percentiles() string {
	slices.Sort(f)
	at := func(percent int) time.Duration {
		return f[min(len(f)*percent/100, len(f)-1)].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %v, p95 %v, of %d", at(50), at(95), len(f))
}

// TestStartOfRcAndDevicesOfAWarmCluster measures what somebody waits for at a
// prompt: the start of the program, a listing of small and large fleets, and
// what a first address costs that is dead.
func TestStartOfRcAndDevicesOfAWarmCluster(t *testing.T) {
	if *rcRuns == 0 {
		t.Skip("measures only with -bench.rc N")
	}
	bin, err := chaos.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("machine: %s", machine(t))
	c := chaos.Start(t, bin, chaos.Options{Controllers: 3, Devices: 1})
	measure := func(what, controllers string, args ...string) {
		t.Helper()
		var all figures
		for range *rcRuns + 1 {
			cmd, stdout, stderr := c.RC(t.Context(), args...)
			if controllers != "" {
				cmd.Env = append(cmd.Env, "RC_CONTROLLER="+controllers)
			}
			begun := time.Now()
			if err := cmd.Run(); err != nil || stdout.Len() == 0 {
				t.Fatalf("rc %s: %v\n%s", strings.Join(args, " "), err, stderr)
			}
			all = append(all, time.Since(begun))
		}
		t.Logf("%s: %s", what, all[1:].percentiles()) // the first one warms up
	}
	measure("rc version --client", "", "version", "--client")
	measure("rc --help", "", "--help")
	measure("rc version", "", "version")
	measure("rc devices, 1 device", "", "devices")

	var urls []string
	for _, n := range c.Nodes {
		urls = append(urls, n.URL)
	}
	living := strings.Join(urls, ",")
	measure("rc devices, a first address that refuses", refusing(t)+","+living, "devices")
	measure("rc devices, a first address that is silent", silent(t)+","+living, "devices")

	for _, fleet := range []struct{ devices, hosts, each int }{{100, 1, 99}, {1000, 4, 225}} {
		for i := range fleet.hosts {
			join(t, c, fmt.Sprintf("h%d-%d", fleet.devices, i), fleet.each)
		}
		c.WaitReady(fleet.devices)
		measure(fmt.Sprintf("rc devices, %d devices", fleet.devices), "", "devices")
		measure(fmt.Sprintf("rc devices -o json, %d devices", fleet.devices), "", "devices", "-o", "json")
	}
	t.Logf("machine: %s", machine(t))
}

// join attaches a pretended host to the cluster, since the devices of one
// agent are bounded; it leaves before the cluster ends.
func join(t *testing.T, c *chaos.Cluster, name string, devices int) {
	t.Helper()
	var addresses []string
	for _, n := range c.Nodes {
		addresses = append(addresses, n.Addr)
	}
	h := rig.StartHost(rig.HostConfig{Name: name, Instance: name + "-1", Devices: devices, Token: chaos.WorkerToken,
		Addresses: addresses, Dial: new(net.Dialer).DialContext, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(h.Stop)
}

// refusing returns an address at which nobody listens.
func refusing(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// silent returns an address that takes no connection and refuses none, as a
// host does that is switched off: its queue of connections is full.
func silent(t *testing.T) string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 8 {
		conn, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return "http://" + address // full
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Skip("this kernel lets the queue of connections grow")
	return ""
}
