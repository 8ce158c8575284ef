package session

import "testing"

func TestTheRowsAreNoMeasureWhileSomethingToldIsOnItsWay(t *testing.T) {
	var d Doubts
	want := func(what string, doubt bool) {
		t.Helper()
		if d.About("box") != doubt || d.About("other") {
			t.Errorf("%s: %v", what, d.About("box"))
		}
	}
	want("nothing said", false)
	lost := d.Propose("box") // its outcome stays unknown
	want("proposed", true)
	second := d.Propose("box")
	third := d.Propose("box")
	second()
	want("one behind it is on its way", true)
	third()
	want("all before the last are settled by it", false)
	lost()
	want("a late outcome", false)
	d.Propose("box")
	d.Reset()
	want("another epoch", false)
	late := d.Propose("box")
	third()
	want("an outcome of before", true)
	late()
	want("known", false)
}
