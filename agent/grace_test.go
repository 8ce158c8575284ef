package agent

import (
	"context"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

func TestAWishForAWarningThatIsNoSignalFailsTheStart(t *testing.T) {
	c := newControl(t)
	a := newTestAgent(t, testConfig(dataDir(t), c))
	start := order(wire.OrderStart, 1, 1, "true")
	start.Start.Env = map[string]string{model.GraceSignalEnv: "STOP@1m"}
	a.Order(context.Background(), start)
	o := a.awaitOutcome(t, key{1, 1})
	if o.End != uint8(command.EndStartFailed) || o.Origin != uint8(model.OriginJob) || !strings.HasPrefix(o.Reason, "start: RC_GRACE_SIGNAL: KILL and STOP") {
		t.Errorf("%+v", o)
	}
}
