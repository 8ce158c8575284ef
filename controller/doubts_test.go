package controller

import "testing"

func TestTheRowsAreNoMeasureWhileSomethingToldIsOnItsWay(t *testing.T) {
	var d doubts
	want := func(what string, doubt bool) {
		t.Helper()
		if d.about("box") != doubt || d.about("other") {
			t.Errorf("%s: %v", what, d.about("box"))
		}
	}
	want("nothing said", false)
	lost := d.propose("box") // its outcome stays unknown
	want("proposed", true)
	second := d.propose("box")
	third := d.propose("box")
	second()
	want("one behind it is on its way", true)
	third()
	want("all before the last are settled by it", false)
	lost()
	want("a late outcome", false)
	d.propose("box")
	d.reset()
	want("another epoch", false)
	late := d.propose("box")
	third()
	want("an outcome of before", true)
	late()
	want("known", false)
}
