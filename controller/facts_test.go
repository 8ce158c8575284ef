package controller_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"rcd/api"
	"rcd/fsm"
	"rcd/jepsen/rig"
	"rcd/model"
	"rcd/wire"
)

// device returns a device's row and the usage sheet that it shows.
func (c *cluster) device(id string) (model.Device, model.Sheet, error) {
	var err error
	for _, n := range c.nodes {
		var view *fsm.View
		if view, _, err = n.Controller.Read(context.Background(), api.ReadOptions{}); err != nil {
			continue // it is stopped
		}
		d := view.Device(id)
		if d == nil {
			return model.Device{}, model.Sheet{}, fmt.Errorf("no %s", id)
		}
		if sheet := view.Sheet(d); sheet != nil {
			return *d, *sheet, nil
		}
		return *d, model.Sheet{}, nil
	}
	return model.Device{}, model.Sheet{}, err
}

func TestFactsOfAHostReachTheTableAndCostNoMoreThanTheyHaveTo(t *testing.T) {
	c := start(t)
	facts := wire.Facts{
		Labels: []wire.DeviceFacts{{Name: "gpu0", Detected: []wire.LabelKV{{Key: "mem_free", Value: "16G"}}}, {Name: "gpu1"}, {Name: "gpu9"}},
		Sheets: []wire.SheetText{{Body: "of the host"}, {Name: "gpu1", Body: "of gpu1"}, {Name: "gpu9", Body: "of nobody"}},
	}
	c.host.SetFacts(facts)
	has := func(device, free, sheet string, hostWide bool) error {
		d, s, err := c.device(device)
		if err != nil {
			return err
		}
		value := ""
		for _, l := range d.Detected {
			value += l.Key + "=" + l.Value
		}
		if value != free || s.Body != sheet || (s.Name == "") != hostWide {
			return fmt.Errorf("%s: %q, sheet %+v", device, value, s)
		}
		return nil
	}
	c.eventually("label and host's sheet", func() error { return has("box:gpu0", "mem_free=16G", "of the host", true) })
	c.eventually("sheet of the device", func() error { return has("box:gpu1", "", "of gpu1", false) })

	// The table has it, so neither a new leader nor a repeat makes an entry.
	ages := func() string {
		_, own, err := c.device("box:gpu1")
		d, hosts, err2 := c.device("box:gpu0")
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		return fmt.Sprint(own, hosts, d.Detected)
	}
	before := ages()
	old := rig.Leader(c.nodes)
	if err := old.Stop(); err != nil {
		t.Fatal(err)
	}
	c.eventually("another leader with the host", func() error {
		if n := rig.Leader(c.nodes); n == nil || n == old || !n.Controller.Attached("box") {
			return errors.New("not yet")
		}
		return nil
	})
	if err := old.Start(); err != nil {
		t.Fatal(err)
	}
	c.host.SetFacts(facts)
	time.Sleep(time.Second)
	if after := ages(); after != before {
		t.Errorf("told again: %s, then %s", before, after)
	}
	facts.Sheets = []wire.SheetText{facts.Sheets[0], {Name: "gpu1"}}
	c.host.SetFacts(facts)
	c.eventually("sheet gone", func() error { return has("box:gpu1", "", "of the host", true) })
}

func TestAFaultThatAHostSaysTakesTheDeviceOutForAPerson(t *testing.T) {
	c := start(t)
	c.host.Fault(wire.DeviceFault{Device: "gpu9", Detail: "of no device"})
	c.host.Fault(wire.DeviceFault{Device: "gpu1", Detail: "fan stopped"})
	c.eventually("device out of the pool", func() error {
		d, _, err := c.device("box:gpu1")
		if err != nil {
			return err
		}
		if d.State != model.DeviceUnhealthy || d.Reason != model.ReasonFault || d.Detail != "fan stopped" {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
	c.eventually("acked", func() error {
		if left := c.host.Faults(); len(left) != 1 || left[0].Device != "gpu9" {
			return fmt.Errorf("left %v", left)
		}
		return nil
	})
	if d, _, err := c.device("box:gpu0"); err != nil || d.State != model.DeviceReady {
		t.Errorf("the other device: %+v, %v", d, err)
	}
}
