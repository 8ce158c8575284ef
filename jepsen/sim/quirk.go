package sim

// Quirk is a deliberate fault in one of the fake parts, or what a fault in the
// state machine would look like. A run with one has to fail in some seed, which
// proves that the witness sees it.
type Quirk uint8

// The quirks of the fake parts.
const (
	NoQuirk Quirk = iota
	// QuirkNoFence: hosts start a lease however old it is.
	QuirkNoFence
	// QuirkForgetOutcome: hosts forget an outcome once sent, unacked.
	QuirkForgetOutcome
	// QuirkAdmitInVerdict: a hello does not wait for a sweep in flight.
	QuirkAdmitInVerdict
	// QuirkAttachUnseen: a sweep takes no notice of a host that was admitted and
	// is not attached yet.
	QuirkAttachUnseen
	// QuirkOrderAhead: a leader that was deposed without noticing orders what a
	// later term has placed.
	QuirkOrderAhead
	// QuirkForgetOrders: a leader does not remember what it has ordered.
	QuirkForgetOrders
	// QuirkJudgeOnce: a leader says nothing more of a host once its devices are
	// unknown, or once it is written off.
	QuirkJudgeOnce
	// QuirkHearAbsent: a leader says that an agent is back for as long as a
	// device of it is unknown, also one that it no longer declares.
	QuirkHearAbsent
	// QuirkBlindProof: hosts answer a survivor check "none" without looking.
	QuirkBlindProof
	// QuirkNoServeSweep: a leader without evidence proposes no sweep, however
	// long nobody has been able to serve a job.
	QuirkNoServeSweep
	// QuirkMoveAgain: leadership moves away from a withheld write-off in every
	// epoch.
	QuirkMoveAgain
	// QuirkForgetFacts: hosts take for told what they have said once.
	QuirkForgetFacts
	// QuirkTrustAnswers: hosts hold what a leader has answered for true although
	// they have said something else since, which nobody has answered.
	QuirkTrustAnswers
	// QuirkTakeRefusals: leaders answer for facts that were refused as a whole,
	// because one of the devices had just been retired.
	QuirkTakeRefusals
	// QuirkNoDoubts: leaders compare facts with rows that what is on its way may
	// still change.
	QuirkNoDoubts
	// QuirkKeepUnregistered: leaders keep sessions of agents that the table does
	// not know.
	QuirkKeepUnregistered
	// QuirkSayWithheld: leaders say again and again what is withheld.
	QuirkSayWithheld
	// QuirkProveAhead: hosts prove while orders wait for the disk.
	QuirkProveAhead
	// QuirkOldProof: leaders take a proof that they asked for before the latest
	// quarantine of its host.
	QuirkOldProof
	// QuirkObeyLate: hosts start what has waited for the disk, however long.
	QuirkObeyLate
	// QuirkNoExtend: leaders do not order extensions.
	QuirkNoExtend
	// QuirkNoWatchdog: hosts let processes run past their limits.
	QuirkNoWatchdog
	// QuirkDeaf: leaders say nothing of the clients of holds.
	QuirkDeaf
	// QuirkDamagedCopy: one controller applies a submit as somebody else's. The
	// witness does not compare that copy, so that checkpoints have to.
	QuirkDamagedCopy
)

// The quirks of the state machine: it does not do what an entry says.
const (
	// QuirkMachineNoGuard: no mass write-off is withheld.
	QuirkMachineNoGuard Quirk = iota + 100
	// QuirkMachineFlaps: devices return by themselves as often as they can.
	QuirkMachineFlaps
	// QuirkMachineNoManual: hosts that want no automatic return are not heard.
	QuirkMachineNoManual
	// QuirkMachineHasty: jobs that nobody serves end after the shortest grace.
	QuirkMachineHasty
	// QuirkMachineNoFault: faults are taken and forgotten.
	QuirkMachineNoFault
	// QuirkMachineNoRequests: request IDs are not remembered.
	QuirkMachineNoRequests
	// QuirkMachineClamps: a runtime above the ceiling is granted up to it.
	QuirkMachineClamps
	// QuirkMachineAging: the queue keeps the order of the default aging.
	QuirkMachineAging
	// QuirkMachineReverses: priorities count the other way round.
	QuirkMachineReverses
	// QuirkMachineWord: every controller is said to know every feature level.
	QuirkMachineWord
	// QuirkMachineLeaks: an allocation changes something even when refused.
	QuirkMachineLeaks
	// QuirkMachineShortHoldoff: the holdoff is the shortest there is.
	QuirkMachineShortHoldoff
	// QuirkMachineHearsSilence: a sweep hears every host that was silent before.
	QuirkMachineHearsSilence
	// QuirkMachineForgives: a registration ends quarantines for faults, too.
	QuirkMachineForgives
	// QuirkMachineRetires: a registration drops idle devices of its host.
	QuirkMachineRetires
	// QuirkMachineSlow: what nobody serves ends ten minutes after the grace.
	QuirkMachineSlow
)

// broken reports whether the fake part that a quirk is about is broken.
func (w *World) broken(q Quirk) bool { return w.options.Quirk == q }
