package agent

import "rcd/agent/shim"

// point is a place in the life of a job where the agent may be killed and
// nothing must be lost: exit code, output, or the knowledge that it ran.
type point string

// The points, in the order in which a job passes them.
const (
	atTermSeen       point = "term seen" // and not on disk yet
	atOrderTaken     point = "order taken"
	atVacated        point = "device vacated"
	atDirMade        point = "directory made"
	atFenceRaised    point = "fence raised"
	atSpecWritten    point = "spec written"
	atShimForked     point = "shim forked"
	atShimReported   point = "shim reported"
	atStarted        point = "started"
	atRunningSeen    point = "running seen"
	atRunningNoted   point = "running noted"
	atKillOrdered    point = "kill ordered"
	atKillPassed     point = "kill passed on"
	atKillFenced     point = "fence raised for a kill" // of a job that never began
	atEnded          point = "ended"
	atChecked        point = "devices checked"
	atOutcomeWritten point = "outcome written"
	atOutcomeTelling point = "outcome being told"
	atAckHeard       point = "ack heard"
	atAckMarked      point = "ack marked"
	atRemoving       point = "record being removed"
	atAdopting       point = "being adopted"
	atUnfenced       point = "fence lowered" // of a job that had not begun
	atRecalled       point = "recalled"
)

// points are all of them, for a test that kills the agent at each.
var points = []point{
	atTermSeen, atOrderTaken, atVacated, atDirMade, atFenceRaised, atSpecWritten, atShimForked, atShimReported, atStarted, atRunningSeen,
	atRunningNoted, atKillOrdered, atKillPassed, atKillFenced, atEnded, atChecked, atOutcomeWritten, atOutcomeTelling, atAckHeard, atAckMarked,
	atRemoving, atAdopting, atUnfenced, atRecalled,
}

// at says that a point is reached. Only tests listen.
func (a *agent) at(p point) {
	if a.deps.reached != nil {
		a.deps.reached(p)
	}
}

// step passes on what package shim says of a start.
func (a *agent) step(s shim.Step) {
	switch s {
	case shim.SpecWritten:
		a.at(atSpecWritten)
	case shim.Forked:
		a.at(atShimForked)
	case shim.Reported:
		a.at(atShimReported)
	}
}
