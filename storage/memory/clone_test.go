package memory

import (
	"reflect"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// TestClonesShareNothing fills every field by reflection, so that a new one that
// leads to memory which a clone shares is found here.
func TestClonesShareNothing(t *testing.T) {
	var record onced.Record
	fill(reflect.ValueOf(&record).Elem())
	apart(t, "Record", reflect.ValueOf(&record), reflect.ValueOf(cloneRecord(&record)))

	var twin onced.TwinEntry
	fill(reflect.ValueOf(&twin).Elem())
	apart(t, "TwinEntry", reflect.ValueOf(&twin), reflect.ValueOf(cloneTwin(&twin)))

	var meta storage.Meta
	fill(reflect.ValueOf(&meta).Elem())
	apart(t, "Meta", reflect.ValueOf(meta), reflect.ValueOf(cloneMeta(meta)))

	if cloneTwin(nil) != nil || cloneResult(nil) != nil {
		t.Error("the clone of nothing is something")
	}
}

// fill makes every pointer, slice and map below v lead to something.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(element)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, element)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type() != reflect.TypeFor[time.Time]() {
				fill(v.Field(i))
			}
		}
	case reflect.String:
		v.SetString("filled")
	}
}

// apart checks that two values are equal and lead to no memory in common.
func apart(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() || a.Pointer() == b.Pointer() {
			t.Errorf("%s: shared, or not there", path)
			return
		}
		apart(t, path, a.Elem(), b.Elem())
	case reflect.Slice:
		if a.Len() != 1 || b.Len() != 1 || a.Pointer() == b.Pointer() {
			t.Errorf("%s: shared, or not there", path)
			return
		}
		apart(t, path+"[0]", a.Index(0), b.Index(0))
	case reflect.Map:
		if a.Len() != 1 || b.Len() != 1 || a.Pointer() == b.Pointer() {
			t.Errorf("%s: shared, or not there", path)
		}
	case reflect.Struct:
		for i := range a.NumField() {
			if a.Type() != reflect.TypeFor[time.Time]() {
				apart(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
			}
		}
	default:
		if !a.Equal(b) {
			t.Errorf("%s: %v and %v", path, a, b)
		}
	}
}
