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
	KindLabelsReplace Kind = 20
	KindSheetPut      Kind = 21
	KindSchedule      Kind = 22
	KindLeaseAllocate Kind = 23
	KindLeaseRelease  Kind = 24
	KindLeaseExtend   Kind = 25
	KindDeviceFault   Kind = 26
	KindDeviceRetire  Kind = 27
	KindRecover       Kind = 28
	KindFeatureRaise  Kind = 29
	KindMemberPut     Kind = 30
	KindMemberRemove  Kind = 31
	KindCheckpoint    Kind = 32
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
	case KindLabelsReplace:
		return "labels.replace"
	case KindSheetPut:
		return "sheet.put"
	case KindSchedule:
		return "schedule"
	case KindLeaseAllocate:
		return "lease.allocate"
	case KindLeaseRelease:
		return "lease.release"
	case KindLeaseExtend:
		return "lease.extend"
	case KindDeviceFault:
		return "device.fault"
	case KindDeviceRetire:
		return "device.retire"
	case KindRecover:
		return "recover"
	case KindFeatureRaise:
		return "feature.raise"
	case KindMemberPut:
		return "member.put"
	case KindMemberRemove:
		return "member.remove"
	case KindCheckpoint:
		return "checkpoint"
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
	case KindLabelsReplace:
		return new(LabelsReplace)
	case KindSheetPut:
		return new(SheetPut)
	case KindSchedule:
		return new(Schedule)
	case KindLeaseAllocate:
		return new(LeaseAllocate)
	case KindLeaseRelease:
		return new(LeaseRelease)
	case KindLeaseExtend:
		return new(LeaseExtend)
	case KindDeviceFault:
		return new(DeviceFault)
	case KindDeviceRetire:
		return new(DeviceRetire)
	case KindRecover:
		return new(Recover)
	case KindFeatureRaise:
		return new(FeatureRaise)
	case KindMemberPut:
		return new(MemberPut)
	case KindMemberRemove:
		return new(MemberRemove)
	case KindCheckpoint:
		return new(Checkpoint)
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
	case *LabelsReplace:
		return KindLabelsReplace, true
	case *SheetPut:
		return KindSheetPut, true
	case *Schedule:
		return KindSchedule, true
	case *LeaseAllocate:
		return KindLeaseAllocate, true
	case *LeaseRelease:
		return KindLeaseRelease, true
	case *LeaseExtend:
		return KindLeaseExtend, true
	case *DeviceFault:
		return KindDeviceFault, true
	case *DeviceRetire:
		return KindDeviceRetire, true
	case *Recover:
		return KindRecover, true
	case *FeatureRaise:
		return KindFeatureRaise, true
	case *MemberPut:
		return KindMemberPut, true
	case *MemberRemove:
		return KindMemberRemove, true
	case *Checkpoint:
		return KindCheckpoint, true
	}
	return 0, false
}
