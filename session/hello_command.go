package session

import (
	"rcd/fsm/command"
	"rcd/wire"
)

// Registration is what a hello asks of the lease table.
func Registration(hello wire.Hello) *command.AgentRegister {
	body := &command.AgentRegister{
		Host: hello.Host, MachineID: hello.MachineID, BootID: hello.BootID, Instance: hello.Instance,
		RequireManualClear: hello.RequireManualClear, Proof: proofOf(hello), Jobs: jobRefs(hello),
	}
	for _, d := range hello.Devices {
		body.Devices = append(body.Devices, command.DeviceSpec{
			Name: d.Name, MaxRuntimeS: d.MaxRuntimeS, Declared: KeyValues(d.Declared), Detected: KeyValues(d.Detected),
			KeepDetected: d.KeepDetected, Begun: d.Begun,
		})
	}
	return body
}

// Recovery is what a later hello of a registered instance asks of it.
func Recovery(hello wire.Hello) *command.Recover {
	return &command.Recover{
		Host: hello.Host, Instance: hello.Instance, Jobs: jobRefs(hello), Proof: proofOf(hello),
		RequireManualClear: hello.RequireManualClear,
	}
}

func proofOf(hello wire.Hello) command.Proof {
	return command.Proof{
		Isolated:         hello.Proof.Isolated,
		SurvivorsChecked: hello.Proof.SurvivorsChecked,
		SurvivorsFound:   hello.Proof.SurvivorsFound,
		Detail:           hello.Proof.Detail,
	}
}

func jobRefs(hello wire.Hello) []command.JobRef {
	var refs []command.JobRef
	for _, j := range hello.Jobs {
		refs = append(refs, command.JobRef{Job: j.Job, Lease: j.Lease})
	}
	return refs
}
