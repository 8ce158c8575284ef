package fsm

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// extremes makes up commands whose every field is a name that exists or not, or
// a number at an edge: what no honest node sends, and what a damaged or a
// hostile one may.
type extremes struct{ s *stream }

// fits are names that exist, by the field that asks for one.
var fits = map[string][]string{
	"Host": {"box", "box", "free"}, "Instance": {"i1", "i1", "f1", ""}, "MachineID": {"m-box", "m-free"}, "BootID": {"boot-1", "boot-2"},
	"Device": {"box:gpu0", "box:gpu1", "free:g"}, "Pinned": {"box:gpu0", "box:gpu1", "free:g", ""}, "Selector": {"rack=r3", "!zz", "", ""},
	"By": {"ann", "bob"}, "Submitter": {"ann", "bob"}, "ID": {"c1", "c2"}, "Node": {"c1", "c2"}, "Detail": {"smoke"}, "Body": {"text", ""},
}

func (x extremes) text(field string) string {
	names := fits[field]
	switch {
	case x.s.one(6):
		names = nil
	case field == "Name": // of a device on its host, or of a setting
		names = append(SettingNames(), "gpu0", "gpu1", "g", "gpu0", "gpu1", "g", "gpu0", "gpu1", "g", "")
	}
	if names == nil {
		return pick(x.s, "", "box", "box:gpu0", "ann", "rack=r3", "a,b", "x:y:z", "\x00", "true")
	}
	return pick(x.s, names...)
}

func (x extremes) fill(field string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if x.s.one(3) {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		x.fill(field, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			x.fill(v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice:
		n := pick(x.s, 0, 1, 1, 2, 3)
		if v.Type().Elem().Kind() == reflect.Uint8 {
			n = pick(x.s, 0, 16, 16, 32)
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			x.fill(field, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(x.text("")), reflect.ValueOf(x.text("")))
	case reflect.String:
		v.SetString(x.text(field))
	case reflect.Bool:
		v.SetBool(x.s.one(2))
	case reflect.Int8, reflect.Int32, reflect.Int64:
		v.SetInt(pick(x.s, 0, 0, 1, -1, 10, 60, 61, 3600, hourMS, dayMS, math.MaxInt32, math.MaxInt64, math.MinInt64) << (64 - v.Type().Bits()) >> (64 - v.Type().Bits()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(pick[uint64](x.s, 0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 1000, math.MaxUint8, math.MaxUint64) << (64 - v.Type().Bits()) >> (64 - v.Type().Bits()))
	default:
		panic(v.Kind().String())
	}
}

// command returns one of every kind in turn.
func (x extremes) command(i int) any {
	all := []any{
		new(command.AgentRegister), new(command.JobEnqueue), new(command.JobStart), new(command.JobFinish), new(command.JobKill),
		new(command.DeviceClear), new(command.Sweep), new(command.JobPrune), new(command.ConfigSet), new(command.LabelsReplace),
		new(command.SheetPut), new(command.Schedule), new(command.LeaseAllocate), new(command.LeaseRelease), new(command.LeaseExtend),
		new(command.DeviceFault), new(command.DeviceRetire), new(command.Recover), new(command.FeatureRaise), new(command.MemberPut),
		new(command.MemberRemove), new(command.Checkpoint), new(command.EpochBegin),
	}
	body := all[i%len(all)]
	x.fill("", reflect.ValueOf(body).Elem())
	if b, ok := body.(*command.FeatureRaise); ok {
		b.Level = min(b.Level, featureLevel) // above, the machine halts
	}
	if x.s.one(2) {
		x.mend(body)
	}
	return body
}

// mend makes those likelier to be accepted that luck alone hardly ever makes fit.
func (x extremes) mend(body any) {
	row := x.s.l.job(x.s.jobNumber())
	if row == nil {
		return
	}
	switch b := body.(type) {
	case *command.JobStart:
		b.JobRef, b.Host, b.Instance = ref(row), row.Host, x.s.l.m.View().Agent("box").Instance
	case *command.JobFinish:
		b.JobRef, b.Host, b.Instance, b.End = ref(row), row.Host, x.s.l.m.View().Agent("box").Instance, b.End%4
	case *command.LeaseExtend:
		b.Job, b.MaxRuntimeS = row.Number, row.MaxRuntimeS+1
	case *command.LeaseAllocate:
		x.mendSpec(&b.Job)
	case *command.JobEnqueue:
		for i := range b.Jobs {
			x.mendSpec(&b.Jobs[i])
		}
	}
}

func (x extremes) mendSpec(s *command.JobSpec) {
	s.Kind, s.Stdio, s.Priority, s.Submitter, s.Command = 0, s.Stdio%3, s.Priority%11, "ann", []string{"true"}
	s.MaxRuntimeS, s.IdleTimeoutS = min(s.MaxRuntimeS, 3600), min(s.IdleTimeoutS, 3600)
	s.SessionS = 0
	if j := x.s.l.job(x.s.jobNumber()); j != nil && j.Kind == model.KindHold {
		s.Hold, s.Pinned, s.Selector, s.Priority, s.NoWait = j.Number, "", "", 0, false
		return
	}
	s.Hold = 0
	if s.Pinned == "" && s.Selector == "" || x.s.one(2) {
		s.Pinned, s.Selector = "box:gpu0", ""
	} else if s.Pinned != "" {
		s.Selector = ""
	}
}

// TestNoExtremeBreaksALaw: every handler takes the edges of every number and
// every name where another belongs; it refuses or does something lawful.
func TestNoExtremeBreaksALaw(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("run again with -fsm.seed=%d", seed)
	accepted := map[reflect.Type]int{}
	for round := range 60 {
		l := busyBox(t)
		l.check = round%10 == 0
		if round%2 == 0 {
			l.ok(member("c1", LevelInside))
			l.ok(raise(LevelInside))
			l.ok(&command.AgentRegister{Host: "held", MachineID: "m-held", Instance: "e1", Devices: []command.DeviceSpec{spec("g", 0)}})
			l.ok(submit(inside(l.queued(holdOf("held:g", 3600)))))
		}
		x := extremes{newStream(seeded{rand.New(rand.NewPCG(seed, uint64(round)))}, l, 1)}
		for i := range 100 {
			body := x.command(i + round)
			if _, begin := body.(*command.EpochBegin); begin && x.s.one(2) {
				l.term++
			}
			l.advanceMS(pick[int64](x.s, 0, 1, 60_000, hourMS))
			r := l.apply(encode(t, command.Request{Scope: "ann", ID: pick(x.s, "", "", "1", "2")}, body))[0]
			if (r.Code == command.OK) != (r.Message == "") {
				t.Fatalf("seed %d: %T: code %q with the sentence %q", seed, body, r.Code, r.Message)
			}
			if r.Code == command.OK && !r.Repeat {
				accepted[reflect.TypeOf(body)]++
			}
			if err := l.m.CheckEntry(); err != nil {
				t.Fatalf("seed %d, round %d: after %+v: %v", seed, round, body, err)
			}
		}
		if err := l.m.Check(); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		restored(t, l.m)
	}
	t.Logf("accepted: %v", accepted)
	if len(accepted) < 18 {
		t.Errorf("only %d kinds were ever accepted", len(accepted))
	}
}
