package controller

import (
	"rcd/fsm"
	"rcd/model"
)

// table is a view of the lease table as liveness reads it.
type tableView struct{ *fsm.View }

var _ table = tableView{}

// LeasesOn returns the live leases of a host, by number.
func (t tableView) LeasesOn(host string) []*model.Lease {
	var all []*model.Lease
	for _, l := range t.Leases() {
		if l.Host == host {
			all = append(all, l)
		}
	}
	return all
}
