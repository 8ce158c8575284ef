package agent

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rcd/agent/probe"
	"rcd/agent/proc"
	"rcd/model"
	"rcd/wire"
)

const gib80 = 80 << 30

// using says what is on a GPU.
func using(u probe.Use) func(context.Context) (probe.Use, error) {
	u.TotalBytes = gib80
	return func(context.Context) (probe.Use, error) { return u, nil }
}

func TestWhatIsLeftOnAGPUAfterAJobTakesItOutOfThePool(t *testing.T) {
	t.Parallel()
	python := []probe.Process{{PID: 4711, UsedBytes: 1203 << 20, Command: "python"}}
	for _, c := range []struct {
		name       string
		idle, left probe.Use
		want       string
	}{
		{"a process", probe.Use{Exact: true}, probe.Use{Exact: true, UsedBytes: 1300 << 20, Processes: python},
			"verify failed: gpu: gpu0: 1203 MiB in use by pid 4711 (python) after the job"},
		{"a process whose memory is not told", probe.Use{}, probe.Use{Processes: []probe.Process{{PID: 4711, Command: "python"}}},
			"verify failed: gpu: gpu0: in use by pid 4711 (python) after the job"},
		{"memory of nobody", probe.Use{Exact: true, UsedBytes: 100 << 20}, probe.Use{Exact: true, UsedBytes: 3 << 30},
			"verify failed: gpu: gpu0: 3072 MiB in use by no process that the driver names (100 MiB before any job) after the job"},
		{"memory of nobody beside a known process", probe.Use{UsedBytes: 600 << 20}, probe.Use{UsedBytes: 5 << 30, Processes: []probe.Process{{PID: 9, UsedBytes: 2 << 30, Command: "Xorg"}}},
			"verify failed: gpu: gpu0: 3072 MiB in use by no process that the driver names (600 MiB before any job) after the job"},
		{"as before", probe.Use{UsedBytes: 600 << 20}, probe.Use{UsedBytes: 600 << 20}, ""},
		{"within what comes and goes", probe.Use{UsedBytes: 600 << 20}, probe.Use{UsedBytes: 1400 << 20}, ""}, // 1 % of 80 GiB is 819 MiB
		{"the process that was there before", probe.Use{UsedBytes: 9 << 30, Processes: python}, probe.Use{UsedBytes: 9 << 30, Processes: python}, ""},
		{"what serves every job", probe.Use{}, probe.Use{UsedBytes: 1 << 30, Processes: []probe.Process{{PID: 77, UsedBytes: 1 << 30, Command: "nvidia-cuda-mps"}}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			gpus := newFakeGPUs()
			gpus.say("GPU-0", using(c.idle), nil)
			a := newHealthAgent(t, gpuConfig(t), gpus)
			j := a.hold(t, 1, 3, "gpu0")
			gpus.say("GPU-0", using(c.left), nil)
			o := j.finish(t)
			if o.Survivors != c.want {
				t.Errorf("survivors %q, want %q", o.Survivors, c.want)
			}
			if *o.ExitCode != 3 || o.Reason != "" || o.Origin != uint8(model.OriginJob) {
				t.Errorf("the job's own end: %+v", o)
			}
		})
	}
}

func TestADriverMayTakeItsTimeToGiveMemoryBack(t *testing.T) {
	t.Parallel()
	gpus := newFakeGPUs()
	a := newHealthAgent(t, gpuConfig(t), gpus)
	a.health.within = time.Minute
	j := a.hold(t, 1, 0, "gpu0")
	var looks atomic.Int32
	gpus.say("GPU-0", func(context.Context) (probe.Use, error) {
		u := probe.Use{TotalBytes: gib80, Exact: true}
		if looks.Add(1) < 4 {
			u.UsedBytes = 40 << 30
		}
		return u, nil
	}, nil)
	if o := j.finish(t); o.Survivors != "" || looks.Load() != 4 {
		t.Errorf("%d looks, outcome %+v", looks.Load(), o)
	}
}

func TestAGPUThatDoesNotAnswerIsNotProvenClean(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(context.Context) (probe.Use, error){
		"error":          func(context.Context) (probe.Use, error) { return probe.Use{}, fmt.Errorf("NVML error 999") },
		"no driver more": func(context.Context) (probe.Use, error) { return probe.Use{}, probe.ErrAbsent },
		"hang": func(ctx context.Context) (probe.Use, error) {
			<-ctx.Done()
			return probe.Use{}, probe.ErrHung
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gpus := newFakeGPUs()
			a := newHealthAgent(t, gpuConfig(t), gpus)
			j, neighbour := a.hold(t, 1, 0, "gpu0"), a.hold(t, 2, 0, "gpu1")
			gpus.say("GPU-0", answer, nil)
			if o := j.finish(t); !strings.HasPrefix(o.Survivors, "verify failed: gpu: gpu0: the driver does not answer after the job") || *o.ExitCode != 0 {
				t.Errorf("outcome %+v", o)
			}
			if o := neighbour.finish(t); o.Survivors != "" {
				t.Errorf("neighbour: %+v", o)
			}
		})
	}
}

func TestWithoutADriverOrWithTheLookSwitchedOffNothingIsLookedAt(t *testing.T) {
	t.Parallel()
	absent := newFakeGPUs()
	absent.say("GPU-0", func(context.Context) (probe.Use, error) { return probe.Use{}, probe.ErrAbsent },
		func(context.Context) (probe.State, error) { return probe.State{}, probe.ErrAbsent })
	if o := newHealthAgent(t, gpuConfig(t), absent).hold(t, 1, 0, "gpu0").finish(t); o.Survivors != "" {
		t.Errorf("without a driver: %+v", o)
	}
	off := newFakeGPUs()
	off.say("GPU-0", func(context.Context) (probe.Use, error) { t.Error("looked at"); return probe.Use{}, nil }, nil)
	config := gpuConfig(t)
	config.Verify.NoGPU = true
	if o := newHealthAgent(t, config, off).hold(t, 1, 0, "gpu0").finish(t); o.Survivors != "" {
		t.Errorf("switched off: %+v", o)
	}
}

func TestADriverThatHangsHoldsUpNeitherTheAgentNorAJob(t *testing.T) {
	t.Parallel()
	gpus := newFakeGPUs()
	gpus.say("GPU-0", func(ctx context.Context) (probe.Use, error) { <-ctx.Done(); return probe.Use{}, probe.ErrHung },
		func(ctx context.Context) (probe.State, error) { <-ctx.Done(); return probe.State{}, probe.ErrHung })
	a := newHealthAgent(t, gpuConfig(t), gpus) // it ends in time as well
	if o := a.hold(t, 1, 4, "gpu0").finish(t); *o.ExitCode != 4 || !strings.HasPrefix(o.Survivors, verifyPrefix) {
		t.Errorf("outcome %+v", o)
	}
	if o := a.hold(t, 2, 0, "gpu1").finish(t); o.Survivors != "" {
		t.Errorf("neighbour: %+v", o)
	}
}

func TestOfAJobOfAnEarlierAgentTheTimeSaysWhatWasThereBefore(t *testing.T) {
	t.Parallel()
	if !probe.SeesHostPIDs() {
		t.Skip("the processes of the host are not to be seen from here")
	}
	gpus := newFakeGPUs()
	config := gpuConfig(t)
	a := newHealthAgent(t, config, gpus)
	a.hold(t, 1, 0, "gpu0")
	j := a.jobs[key{1, 1}]
	old := probe.Process{PID: os.Getpid(), Command: "agent.test"}
	young := probe.Process{PID: j.handle.Status().Job.PID, Command: "sh"}
	for p, want := range map[probe.Process]bool{old: true, young: false, {PID: 1 << 30}: false} {
		if mayStay(p, nil, j.handle.Tree().Since) != want {
			t.Errorf("%+v may stay: %v", p, !want)
		}
	}
	if before := (&gpuBefore{map[proc.ID]bool{identify(young): true}}); !mayStay(young, before, 0) || mayStay(old, before, 0) {
		t.Error("what was seen before the job counts")
	}
	a.Order(context.Background(), order(wire.OrderKill, 1, 1))
}
