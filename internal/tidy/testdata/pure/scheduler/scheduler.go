// Package scheduler reads a float that another package declares.
package scheduler

import "rcd/model"

func weigh(j model.Job) bool {
	return j.Weight > 1 // want "type float64"
}
