package command

import "strconv"

// Kind says what a command does.
type Kind uint16

// The kinds are persisted: append only. Numbers of kinds that DESIGN names and
// this version does not have yet stay free.
const (
	KindEntry         Kind = 1 // the envelope, see Entry
	KindEpochBegin    Kind = 10
	KindAgentRegister Kind = 11
	KindJobEnqueue    Kind = 12
	KindJobStart      Kind = 13
	KindJobFinish     Kind = 14
	KindJobKill       Kind = 15
	KindDeviceClear   Kind = 16
	KindSweep         Kind = 17
	KindJobPrune      Kind = 18
	KindConfigSet     Kind = 19
)

// String returns the kind's name, such as "job.enqueue".
func (k Kind) String() string {
	switch k {
	case KindEntry:
		return "entry"
	case KindEpochBegin:
		return "epoch.begin"
	case KindAgentRegister:
		return "agent.register"
	case KindJobEnqueue:
		return "job.enqueue"
	case KindJobStart:
		return "job.start"
	case KindJobFinish:
		return "job.finish"
	case KindJobKill:
		return "job.kill"
	case KindDeviceClear:
		return "device.clear"
	case KindSweep:
		return "sweep"
	case KindJobPrune:
		return "job.prune"
	case KindConfigSet:
		return "config.set"
	}
	return "kind-" + strconv.Itoa(int(k))
}

func newBody(k Kind) any {
	switch k {
	case KindEpochBegin:
		return new(EpochBegin)
	case KindAgentRegister:
		return new(AgentRegister)
	case KindJobEnqueue:
		return new(JobEnqueue)
	case KindJobStart:
		return new(JobStart)
	case KindJobFinish:
		return new(JobFinish)
	case KindJobKill:
		return new(JobKill)
	case KindDeviceClear:
		return new(DeviceClear)
	case KindSweep:
		return new(Sweep)
	case KindJobPrune:
		return new(JobPrune)
	case KindConfigSet:
		return new(ConfigSet)
	}
	return nil
}

func kindOf(body any) (Kind, bool) {
	switch body.(type) {
	case *EpochBegin:
		return KindEpochBegin, true
	case *AgentRegister:
		return KindAgentRegister, true
	case *JobEnqueue:
		return KindJobEnqueue, true
	case *JobStart:
		return KindJobStart, true
	case *JobFinish:
		return KindJobFinish, true
	case *JobKill:
		return KindJobKill, true
	case *DeviceClear:
		return KindDeviceClear, true
	case *Sweep:
		return KindSweep, true
	case *JobPrune:
		return KindJobPrune, true
	case *ConfigSet:
		return KindConfigSet, true
	}
	return 0, false
}
