package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"rcd/fsm/command"
	"rcd/internal/codec"
)

// forged makes the records in data a snapshot whose counts and digest are
// right, so that what fuzzing finds lies behind them. Records that are not
// whole are left out.
func forged(data []byte) []byte {
	in := bytes.NewReader(data)
	var out bytes.Buffer
	var sum Digest
	var rows, index uint64
	for in.Len() > 0 {
		record, err := codec.ReadRaw(in, maxRecord)
		if err != nil {
			break
		}
		h, body, err := codec.Open(record)
		if err != nil || (h.Kind == snapshotTrailer && h.Flags == codec.FlagMandatory) {
			continue
		}
		if h.Kind == snapshotHeader {
			var header headerRecord
			if codec.Unmarshal(body, &header) == nil {
				index = header.Index
			}
		}
		if h.Kind >= rowKind {
			rows++
			sum.add(sumOfRecord(h.Kind, body))
		}
		_ = codec.WriteRaw(&out, record, maxRecord)
	}
	digest := sum.Bytes()
	trailer := codec.MustMarshal(&trailerRecord{Rows: rows, Digest: digest[:], Index: index})
	_ = codec.WriteRaw(&out, codec.Seal(codec.Header{Version: 1, Kind: snapshotTrailer, Flags: codec.FlagMandatory}, trailer), maxRecord)
	return out.Bytes()
}

// sumOfRecord is the share of a row as a reader would count it.
func sumOfRecord(kind uint16, body []byte) Digest {
	l := &loader{txn: txn{View: emptyView()}}
	if l.row(kind, body) != nil {
		return Digest{}
	}
	switch tableID(kind - rowKind) {
	case tableMeta:
		return rowSum(tableMeta, nil, codec.MustMarshal(&l.meta))
	case tableSettings:
		return rowSum(tableSettings, nil, codec.MustMarshal(&l.settings))
	}
	l.sumTables()
	return l.digest
}

// FuzzRestore: no bytes make a snapshot's reader panic; what it refuses it
// refuses with ErrSnapshot and changes nothing, what it takes it writes again.
func FuzzRestore(f *testing.F) {
	for _, m := range []*Machine{New(Options{}), busyBox(f).m} {
		whole := contents(f, m)
		f.Add(whole, false)
		f.Add(whole, true)
		f.Add(whole[:len(whole)/2], true)
	}
	f.Fuzz(func(t *testing.T, data []byte, forge bool) {
		if forge {
			data = forged(data)
		}
		m := New(Options{})
		before := m.View()
		if err := m.Restore(bytes.NewReader(data)); err != nil {
			if !errors.Is(err, ErrSnapshot) {
				t.Fatalf("%v is no ErrSnapshot", err)
			}
			if m.View() != before {
				t.Fatal("a refused snapshot changed the state")
			}
			return
		}
		first := contents(t, m)
		again := New(Options{})
		if err := again.Restore(bytes.NewReader(first)); err != nil {
			if m.Check() != nil {
				return // rows that say themselves that they are not ours
			}
			t.Fatal(err)
		}
	})
}

// FuzzApply: no command, whatever its numbers and texts, makes a handler panic
// or leaves a state that breaks a law, on a state with something in every
// table; and the next leader goes on from there.
func FuzzApply(f *testing.F) {
	l := busyBox(f)
	l.advanceMS(hourMS)
	l.ok(&command.Sweep{})
	base, index, term, stamp := contents(f, l.m), l.index, l.term, l.stamp
	add := func(bodies ...any) {
		var raw []byte
		for _, body := range bodies {
			data := encode(f, command.Request{Scope: "ann", ID: "k2"}, body)
			raw = append(binary.BigEndian.AppendUint16(raw, uint16(len(data))), data...)
		}
		f.Add(raw, int64(5000))
	}
	active := l.m.View().Active()
	for _, j := range active {
		add(started(j, "i1"), exited(j, "i1", 3))
		add(&command.LeaseRelease{Job: j.Number, By: "ann", Admin: true, Force: true, Detached: true}, extend(j, 9))
		add(&command.JobKill{Job: j.Number, By: "ann"}, &command.JobPrune{Limit: 5})
		add(&command.Sweep{
			EpochMS: hourMS, Silent: []command.AgentSilence{{Host: "box", Instance: "i1", SilenceMS: hourMS, DetachedMS: hourMS}},
			Unnamed: []command.LeaseUnnamed{{Lease: j.Lease, UnnamedMS: hourMS}}, Unordered: []uint64{j.Number},
			Heard: []command.AgentHeard{{Host: "free", Instance: "f1"}},
		})
	}
	add(submit(pinned("free:g"), ranked(selecting("rack in (r3),vram>=1G"), 10)), allocate(pinned("free:g")))
	add(again("i2", 99, ref(active[0])), &command.Recover{Host: "box", Instance: "i2", Proof: clean}, &command.DeviceClear{Device: "box:gpu1"})
	add(&command.LabelsReplace{Host: "box", Instance: "i1", Source: 1, Sets: []command.DeviceLabels{{Name: "gpu0", Labels: []command.KV{{Key: "vram", Value: "1G"}}}}})
	add(&command.SheetPut{Host: "box", Instance: "i1", Sheets: []command.SheetText{{Name: "gpu0", Body: "text"}, {Body: "host"}}})
	add(&command.DeviceFault{Device: "free:g", Instance: "f1", Detail: "smoke"}, &command.DeviceRetire{Device: "free:g"}, &command.DeviceRetire{Host: "box"})
	add(member("c1", 1), raise(1, "c1"), &command.MemberRemove{ID: "c1"}, &command.Schedule{})
	add(&command.Checkpoint{Index: 2, Voters: 1, Reports: reports("c1=a")}, aging(7))
	add(&command.EpochBegin{Node: "c1", MedianMS: 1 << 40, WallMS: 1 << 41})
	f.Fuzz(func(t *testing.T, data []byte, later int64) {
		m := New(Options{PanicOnInvariant: true})
		if err := m.Restore(bytes.NewReader(base)); err != nil {
			t.Fatal(err)
		}
		var commands [][]byte
		for len(data) >= 2 && len(commands) < 8 {
			n := min(int(binary.BigEndian.Uint16(data)), len(data)-2)
			commands = append(commands, data[2:2+n])
			data = data[2+n:]
		}
		apply := func(index, term uint64, stamp int64, commands ...[]byte) {
			entry, err := command.EncodeEntry(term, stamp, commands)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := m.Apply(index, term, entry); err != nil {
				if errors.Is(err, command.ErrUndecodable) || errors.Is(err, command.ErrUnknownKind) || errors.Is(err, ErrFeatureLevel) {
					t.Skip()
				}
				t.Fatal(err)
			}
			if err := m.Check(); err != nil {
				t.Fatal(err)
			}
		}
		apply(index+1, term, stamp+later, commands...)
		begin := encode(t, command.Request{}, &command.EpochBegin{Node: "c2", WallMS: startOfTime})
		apply(index+2, term+1, stamp, begin)
		apply(index+3, term+1, stamp+hourMS*nsPerMS, append([][]byte{encode(t, command.Request{}, &command.Schedule{})}, commands...)...)
	})
}
