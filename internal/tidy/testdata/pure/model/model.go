// Package model is at the edge and may hold what it likes.
package model

type Job struct{ Weight float64 }
