package bubble

import (
	"context"
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/jepsen/rig"
)

func (f *fleet) propose(body any) {
	f.t.Helper()
	encoded, err := command.Encode(command.Request{}, body)
	if err != nil {
		f.t.Fatal(err)
	}
	if result, _, err := rig.Leader(f.nodes).Controller.Propose(context.Background(), encoded); err != nil || result.Code != command.OK {
		f.t.Fatal(result.Message, err)
	}
}

// A silent host comes back, and before any sweep has said so its retirement is
// taken: its session stands and nobody knows it.
func TestAHostRetiredAtTheMomentItCameBackRegistersAgain(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		time.Sleep(20 * time.Second)
		const long = int64(1) << 40
		f.propose(&command.Sweep{EpochMS: long, Silent: []command.AgentSilence{{Host: "box", Instance: "i1", SilenceMS: 10_000, DetachedMS: 10_000}}})
		f.propose(&command.DeviceRetire{Host: "box"})
		if v := f.device("box:gpu0"); v.Device.ID != "" {
			t.Fatalf("the host was heard before it was retired: %+v", v.Device)
		}
		retired := time.Now()
		f.eventually("ready devices", func() bool { return f.state("box:gpu0") == "ready" && f.state("box:gpu1") == "ready" })
		if took := time.Since(retired); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
		if n := f.box.Welcomes(); n != 2 {
			t.Errorf("%d welcomes, want the first and one more", n)
		}
		f.box.Exit(f.run("box:gpu0"), 0)
	})
}
