package api

import (
	"fmt"

	"rcd/fsm/command"
)

// leaderSummary is summary for what a leader proposes on its own account about
// hosts and controllers.
func leaderSummary(body any) string {
	switch b := body.(type) {
	case *command.Recover:
		text := fmt.Sprintf("host %s instance %s jobs %d", shown(b.Host, maxShownText), shown(b.Instance, maxShownID), len(b.Jobs))
		switch {
		case b.Proof.SurvivorsFound:
			text += " survivors: " + shown(b.Proof.Detail, maxShownText)
		case b.Proof.SurvivorsChecked:
			text += " proof=no-survivors"
		}
		return text
	case *command.MemberPut:
		return fmt.Sprintf("%s incarnation %s knows level %d build %s",
			shown(b.ID, maxShownText), shown(b.Incarnation, maxShownID), b.Supports, quoted(b.Build))
	case *command.MemberRemove:
		return shown(b.ID, maxShownText)
	case *command.FeatureRaise:
		return fmt.Sprintf("to level %d", b.Level)
	case *command.Checkpoint:
		text := fmt.Sprintf("at %d, %d of %d voters:", b.Index, len(b.Reports), b.Voters)
		for _, r := range b.Reports {
			text += fmt.Sprintf(" %s=%x", shown(r.Node, maxShownText), shownDigest(r.Digest))
		}
		return text
	}
	return ""
}

// shownDigest is the beginning of a digest: enough to see which differ.
func shownDigest(digest []byte) []byte {
	const bytes = 4
	return digest[:min(bytes, len(digest))]
}
