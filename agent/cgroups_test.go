package agent

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"rcd/agent/proc"
)

func TestAnAgentThatStartsRemovesTheCgroupOfAJobWhoseDirectoryIsGone(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	jobs := filepath.Join(config.DataDir, jobsDir)
	ours, err := proc.MakeCgroup("j-1", rand.Text(), filepath.Join(jobs, "1-1"))
	if err != nil {
		t.Skipf("no cgroup to be had here: %v", err)
	}
	theirs, err := proc.MakeCgroup("j-1", rand.Text(), filepath.Join(t.TempDir(), jobsDir, "1-1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, path := range []string{ours, theirs} {
			if err := proc.RemoveCgroup(path); err != nil {
				t.Error(err)
			}
		}
	})
	startAgent(t, config)
	eventually(t, "removed", func() bool { _, err := os.Stat(ours); return os.IsNotExist(err) })
	if _, err := os.Stat(theirs); err != nil {
		t.Errorf("another installation's is gone too: %v", err)
	}
}
