package bubble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rcd/client"
	ctl "rcd/controller"
	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/jepsen/rig"
	"rcd/raftnode"
	"rcd/wire"
)

// damage makes one node's copy of the lease table another than the log says:
// the next submit that it applies is somebody else's there.
type damage struct{ node atomic.Value }

func (d *damage) change(id string, _ *ctl.Config, deps *ctl.Deps) {
	deps.Replica = func(inner raftnode.StateMachine) raftnode.StateMachine { return &damaged{inner, id, d} }
}

type damaged struct {
	raftnode.StateMachine
	id string
	d  *damage
}

func (m *damaged) Apply(index, term uint64, data []byte) ([]command.Result, []command.Event, error) {
	if m.d.node.Load() == m.id {
		if forged := forge(data); forged != nil {
			m.d.node.Store("")
			data = forged
		}
	}
	return m.StateMachine.Apply(index, term, data)
}

// forge returns the entry with another submitter, or nil when nobody submits.
func forge(data []byte) []byte {
	entry, err := command.DecodeEntry(data)
	if err != nil {
		return nil
	}
	for i, raw := range entry.Commands {
		cmd, err := command.Decode(raw)
		if err != nil {
			return nil
		}
		if submit, ok := cmd.Body.(*command.JobEnqueue); ok {
			submit.Jobs[0].Submitter = "mallory"
			if entry.Commands[i], err = command.Encode(cmd.Request, submit); err != nil {
				return nil
			}
			forged, _ := command.EncodeEntry(entry.Term, entry.Stamp, entry.Commands)
			return forged
		}
	}
	return nil
}

// fill makes the log so long that a checkpoint is due.
func (f *fleet) fill() {
	f.t.Helper()
	nothing, err := command.Encode(command.Request{}, &command.Schedule{})
	if err != nil {
		f.t.Fatal(err)
	}
	for index := uint64(0); index <= fsm.CheckpointEvery; {
		leader := f.leader()
		if _, at, err := leader.Controller.Propose(context.Background(), nothing); err == nil {
			index = at
		}
	}
}

func (f *fleet) status(n *rig.Node) wire.RaftStatus {
	return n.Controller.RaftStatus(context.Background())
}

// others lists the nodes but one.
func (f *fleet) others(than *rig.Node) []*rig.Node {
	var all []*rig.Node
	for _, n := range f.nodes {
		if n != than {
			all = append(all, n)
		}
	}
	return all
}

func (f *fleet) submit() string {
	f.t.Helper()
	job, err := f.rc.Submit(context.Background(), client.SubmitOptions{DeviceID: "box:gpu0", Command: []string{"train"}, Submitter: "ann"})
	if err != nil {
		f.t.Fatal(err)
	}
	return job.ID
}

func TestADamagedCopyHaltsAloneAndReturnsOnlyWiped(t *testing.T) {
	for _, who := range []string{"follower", "leader"} {
		t.Run(who, func(t *testing.T) {
			d := &damage{}
			inFleetOf(t, d.change, func(t *testing.T, f *fleet) {
				leader := f.leader()
				bad := leader
				if who == "follower" {
					bad = f.others(leader)[0]
				}
				d.node.Store(bad.ID)
				job := f.submit()
				f.fill()
				f.eventually("a halt", func() bool { return f.status(bad).State == "halted" })
				status := f.status(bad)
				if !strings.Contains(status.Halted, "at index 1000") || !strings.Contains(status.Halted, "let it rejoin as a new node") {
					t.Errorf("the sentence is %q", status.Halted)
				}
				good := f.others(bad)
				f.eventually("a leader among the others", func() bool {
					return good[0].Controller.Leader().Self || good[1].Controller.Leader().Self
				})
				row, err := f.rc.Job(context.Background(), job)
				if err != nil || row.Submitter != "ann" {
					t.Errorf("the job is read as %+v, %v", row, err)
				}
				f.submit() // the cluster goes on
				time.Sleep(time.Minute)
				for _, n := range good {
					if s := f.status(n); s.State == "halted" || s.Digest != f.status(good[0]).Digest {
						t.Errorf("%s is %s with digest %s", n.ID, s.State, s.Digest)
					}
				}
				f.wantHaltedPeer(good[0], bad)
				f.wantServesNothing(bad)
				f.wantRefusedUntilWiped(bad)
			})
		})
	}
}

func (f *fleet) wantHaltedPeer(asked, bad *rig.Node) {
	f.t.Helper()
	for _, p := range asked.Controller.RaftPeers(context.Background()) {
		if (p.Halted != "") != (p.ID == bad.ID) {
			f.t.Errorf("%s shows %s as halted: %q", asked.ID, p.ID, p.Halted)
		}
	}
}

func (f *fleet) wantServesNothing(bad *rig.Node) {
	f.t.Helper()
	only, err := client.New(client.Options{Controllers: []string{bad.ID + ":8080"}, Token: rig.AdminToken, Dial: f.net.Dialer("desk"), Patience: 10 * time.Second})
	if err != nil {
		f.t.Fatal(err)
	}
	defer only.Close()
	for _, query := range []string{"", "?stale=true"} {
		began := time.Now()
		if a := f.devices(bad, query); a.no.Code != wire.CodeHalted || !strings.Contains(a.no.Message, "at index 1000") || time.Since(began) > time.Second {
			f.t.Errorf("a halted node answers %d %+v after %v", a.status, a.no, time.Since(began))
		}
	}
	_, err = only.Jobs(context.Background(), client.JobsOptions{})
	var outage *client.OutageError
	if !errors.As(err, &outage) || outage.Code() != wire.CodeHalted {
		f.t.Errorf("with only a halted node the client says %v", err)
	}
	f.wantPassedOver(bad)
}

// wantPassedOver checks that a client which names a halted node first notices
// nothing of it, and that it can still be looked at.
func (f *fleet) wantPassedOver(bad *rig.Node) {
	f.t.Helper()
	list := []string{bad.ID + ":8080"}
	for _, n := range f.others(bad) {
		list = append(list, n.ID+":8080")
	}
	rc, err := client.New(client.Options{Controllers: list, Token: rig.AdminToken, Dial: f.net.Dialer("desk"),
		Notify: func(n client.Notice) { f.t.Errorf("the user is told: %s", n) }})
	if err != nil {
		f.t.Fatal(err)
	}
	defer rc.Close()
	began := time.Now()
	if _, err := rc.Submit(context.Background(), client.SubmitOptions{DeviceID: "box:gpu1", Command: []string{"train"}, Submitter: "ann"}); err != nil {
		f.t.Error(err)
	}
	if took := time.Since(began); took > time.Second {
		f.t.Errorf("a submit took %v", took)
	}
	for _, name := range []string{bad.ID, bad.ID + ":8080"} {
		s, err := rc.RaftStatus(context.Background(), name)
		if err != nil || s.Node != bad.ID || s.State != "halted" || !strings.HasPrefix(s.Halted, "at index 1000") {
			f.t.Errorf("status of %s: %+v, %v", name, s, err)
		}
	}
	peers, err := rc.RaftPeers(context.Background(), bad.ID)
	if err != nil {
		f.t.Fatal(err)
	}
	leaders := 0
	for _, p := range peers {
		if p.Leader {
			leaders++
		}
	}
	if leaders != 1 {
		f.t.Errorf("the halted node names %d leaders in %+v", leaders, peers)
	}
}

func (f *fleet) wantRefusedUntilWiped(bad *rig.Node) {
	f.t.Helper()
	if err := bad.Stop(); err != nil {
		f.t.Fatal(err)
	}
	if err := bad.Start(); !errors.Is(err, raftnode.ErrHalted) || !strings.Contains(err.Error(), "then empty it") {
		f.t.Fatalf("started again on its data: %v", err)
	}
	if err := os.RemoveAll(bad.Dir()); err != nil {
		f.t.Fatal(err)
	}
	if err := bad.Start(); err != nil {
		f.t.Fatalf("an emptied directory is refused: %v", err)
	}
}

func TestCheckpointsLeaveAnIdleLogIdle(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.fill()
		leader := f.leader()
		f.eventually("a checkpoint", func() bool { return f.checkpoints() == 1 })
		time.Sleep(10 * time.Second)
		before := f.status(leader).LastLog
		time.Sleep(10 * time.Minute)
		if after := f.status(leader).LastLog; after != before {
			t.Errorf("an idle log went from %d to %d in ten minutes", before, after)
		}
	})
}

// commands calls see for every command in the leader's log.
func (f *fleet) commands(see func(command.Command)) {
	f.t.Helper()
	page, err := f.leader().Controller.RaftLog(1, 10_000)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, e := range page.Entries {
		entry, err := command.DecodeEntry(e.Data)
		if err != nil {
			continue // raft's own
		}
		for _, raw := range entry.Commands {
			cmd, err := command.Decode(raw)
			if err != nil {
				f.t.Fatal(err)
			}
			see(cmd)
		}
	}
}

// kinds counts the commands in the log by kind.
func (f *fleet) kinds() map[string]int {
	f.t.Helper()
	kinds := map[string]int{}
	f.commands(func(cmd command.Command) { kinds[cmd.Kind.String()]++ })
	return kinds
}

// checkpoints counts those with a digest of each controller.
func (f *fleet) checkpoints() (n int) {
	f.t.Helper()
	f.commands(func(cmd command.Command) {
		if b, ok := cmd.Body.(*command.Checkpoint); ok && b.Index == fsm.CheckpointEvery && len(b.Reports) == len(f.nodes) {
			n++
		}
	})
	return n
}

func TestTwoThatDifferWithoutAMajorityRaiseAnAlarmAndHaltNobody(t *testing.T) {
	d := &damage{}
	inFleetOf(t, d.change, func(t *testing.T, f *fleet) {
		leader := f.leader()
		others := f.others(leader)
		d.node.Store(others[0].ID)
		f.submit()
		f.net.Isolate(others[1].ID) // nobody knows what it holds
		f.fill()
		f.eventually("alarms", func() bool { return f.alarm(leader, wire.AlarmNoMajority) && f.alarm(others[0], wire.AlarmNoMajority) })
		before := f.status(leader).LastLog
		time.Sleep(5 * time.Minute)
		if after := f.status(leader).LastLog; after != before {
			t.Errorf("with an alarm the log went from %d to %d in five minutes", before, after)
		}
		for _, n := range f.nodes {
			if s := f.status(n); s.State == "halted" {
				t.Errorf("%s halted: %s", n.ID, s.Halted)
			}
		}
		// The third one's word decides, and no other thousand entries are waited for.
		f.net.Heal(others[1].ID)
		f.eventually("a halt", func() bool { return f.status(others[0]).State == "halted" })
		f.eventually("the end of the alarm", func() bool { return !f.alarm(f.leader(), wire.AlarmNoMajority) })
		for _, n := range f.others(others[0]) {
			if s := f.status(n); s.State == "halted" {
				t.Errorf("%s halted: %s", n.ID, s.Halted)
			}
		}
		time.Sleep(10 * time.Second)
		before = f.status(f.leader()).LastLog
		time.Sleep(5 * time.Minute)
		if after := f.status(f.leader()).LastLog; after != before {
			t.Errorf("with that decided the log went from %d to %d in five minutes", before, after)
		}
	})
}

func (f *fleet) alarm(n *rig.Node, code string) bool {
	for _, a := range f.status(n).Alarms {
		if a.Code == code && a.Message != "" && !a.Since.IsZero() {
			return true
		}
	}
	return false
}

func (f *fleet) features() (levels []uint32) {
	for _, n := range f.nodes {
		levels = append(levels, n.Controller.FeatureLevel())
	}
	return levels
}

func TestTheFeatureLevelIsRaisedByEveryMembersWordAndAnOlderBuildIsRefused(t *testing.T) {
	old := atomic.Value{}
	old.Store("c3")
	change := func(id string, config *ctl.Config, deps *ctl.Deps) {
		deps.Table.Knows, config.Version = 2, "2.0"
		if old.Load() == id {
			deps.Table.Knows, config.Version = 1, "1.0"
		}
	}
	inFleetOf(t, change, func(t *testing.T, f *fleet) {
		time.Sleep(time.Minute)
		if levels := fmt.Sprint(f.features()); levels != "[1 1 1]" {
			t.Errorf("with one build that knows less the levels are %s", levels)
		}
		upgrade := f.nodes[2]
		if err := upgrade.Stop(); err != nil {
			t.Fatal(err)
		}
		old.Store("")
		if err := upgrade.Start(); err != nil {
			t.Fatal(err)
		}
		f.eventually("level 2", func() bool { return fmt.Sprint(f.features()) == "[2 2 2]" })
		f.commands(func(cmd command.Command) {
			if b, ok := cmd.Body.(*command.FeatureRaise); ok && fmt.Sprint(b.Members) != "[c1 c2 c3]" {
				t.Errorf("the level was raised for %v", b.Members)
			}
		})
		time.Sleep(10 * time.Second)
		before := f.status(f.leader()).LastLog
		time.Sleep(10 * time.Minute)
		if after := f.status(f.leader()).LastLog; after != before {
			t.Errorf("an idle log went from %d to %d in ten minutes", before, after)
		}
		// Back to the build before: refused at its start, in words.
		if err := upgrade.Stop(); err != nil {
			t.Fatal(err)
		}
		old.Store("c3")
		if err := upgrade.Start(); err == nil || !strings.Contains(err.Error(), "feature level 2 and this build knows 1") {
			t.Errorf("an older build was started: %v", err)
		}
		old.Store("")
		if err := upgrade.Start(); err != nil {
			t.Fatal(err)
		}
		f.leader()
	})
}

func TestAControllerThatIsGoneLeavesTheRecord(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.eventually("three on record", func() bool { return f.kinds()["member.put"] == 3 })
		ghost, err := command.Encode(command.Request{}, &command.MemberPut{ID: "c9", Incarnation: "gone", Supports: fsm.LevelInside})
		if err != nil {
			t.Fatal(err)
		}
		if result, _, err := f.leader().Controller.Propose(context.Background(), ghost); err != nil || result.Code != command.OK {
			t.Fatal(result, err)
		}
		time.Sleep(time.Minute)
		if kinds := f.kinds(); kinds["member.remove"] != 1 || kinds["member.put"] != 4 {
			t.Errorf("the log has %v", kinds)
		}
	})
}

// crowd attaches more hosts.
func (f *fleet) crowd(n int) []*rig.Host {
	var all []*rig.Host
	for i := range n {
		name := fmt.Sprintf("host%d", i)
		all = append(all, rig.StartHost(rig.HostConfig{Name: name, Instance: "i1", Devices: 1, Token: rig.WorkerToken,
			Addresses: []string{"c1:7001", "c2:7001", "c3:7001"}, Dial: f.net.Dialer(name), Logger: slog.New(slog.DiscardHandler)}))
	}
	f.eventually("ready crowd", func() bool {
		for _, h := range all {
			if f.state(h.Name+":gpu0") != "ready" {
				return false
			}
		}
		return true
	})
	return all
}

func TestAMassWriteOffMovesLeadershipOnceThenWaitsForAnOperator(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		crowd := f.crowd(5)
		defer func() {
			for _, h := range crowd {
				f.net.Heal(h.Name)
				h.Stop()
			}
		}()
		first := f.leader()
		for _, h := range crowd {
			f.net.Isolate(h.Name)
		}
		time.Sleep(4 * time.Minute)
		f.eventually("alarm", func() bool { return f.alarm(first, wire.AlarmWriteOffWithheld) })
		f.eventually("another leader", func() bool { return f.leader() != first })
		second := f.leader()
		epoch := f.status(second).Epoch
		time.Sleep(10 * time.Minute) // its own evidence is due by then
		before := f.status(second).LastLog
		time.Sleep(10 * time.Minute)
		status := f.status(f.leader())
		if status.Epoch != epoch {
			t.Errorf("leadership moved again: epoch %d after %d", status.Epoch, epoch)
		}
		if status.LastLog != before {
			t.Errorf("while it waits the log went from %d to %d", before, status.LastLog)
		}
		for _, n := range f.nodes {
			if !f.alarm(n, wire.AlarmWriteOffWithheld) {
				t.Errorf("%s is silent about it: %+v", n.ID, f.status(n).Alarms)
			}
		}
		if state := f.state("host0:gpu0"); state != "unknown" {
			t.Errorf("a withheld write-off left the device %s", state)
		}
		permit, err := command.Encode(command.Request{}, &command.ConfigSet{Settings: []command.Setting{{Name: "mass_permit", Value: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		if result, _, err := f.leader().Controller.Propose(context.Background(), permit); err != nil || result.Code != command.OK {
			t.Fatal(result, err)
		}
		f.eventually("write-off", func() bool { return f.state("host0:gpu0") == "unhealthy" && f.state("host4:gpu0") == "unhealthy" })
		if f.alarm(f.leader(), wire.AlarmWriteOffWithheld) {
			t.Error("the alarm outlasts the permit")
		}
	})
}
