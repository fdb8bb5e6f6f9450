package storagetest

import (
	"bytes"
	"fmt"
	"reflect"
	"time"
)

// difference says where two values of one type differ, "" where they do not. An
// empty slice or map is the same as none, and times are compared as moments: a
// backend need not keep what no reader may depend on.
func difference(want, got any) string {
	return differ("value", reflect.ValueOf(want), reflect.ValueOf(got))
}

func differ(path string, want, got reflect.Value) string {
	if w, ok := want.Interface().(time.Time); ok {
		return unequal(path, w.Equal(got.Interface().(time.Time)), want, got)
	}
	if w, ok := want.Interface().([]byte); ok {
		g := got.Interface().([]byte)
		if !bytes.Equal(w, g) {
			return fmt.Sprintf("%s: want %d bytes, got %d that differ", path, len(w), len(g))
		}
		return ""
	}
	switch want.Kind() {
	case reflect.Pointer:
		if want.IsNil() || got.IsNil() {
			return unequal(path+" != nil", want.IsNil() == got.IsNil(), reflect.ValueOf(!want.IsNil()), reflect.ValueOf(!got.IsNil()))
		}
		return differ(path, want.Elem(), got.Elem())
	case reflect.Struct:
		for i := range want.NumField() {
			if d := differ(path+"."+want.Type().Field(i).Name, want.Field(i), got.Field(i)); d != "" {
				return d
			}
		}
		return ""
	case reflect.Slice:
		return differSlice(path, want, got)
	case reflect.Map:
		return differMap(path, want, got)
	default:
		return unequal(path, want.Equal(got), want, got)
	}
}

func differSlice(path string, want, got reflect.Value) string {
	if want.Len() != got.Len() {
		return fmt.Sprintf("%s: want %d elements, got %d", path, want.Len(), got.Len())
	}
	for i := range want.Len() {
		if d := differ(fmt.Sprintf("%s[%d]", path, i), want.Index(i), got.Index(i)); d != "" {
			return d
		}
	}
	return ""
}

func differMap(path string, want, got reflect.Value) string {
	if want.Len() != got.Len() {
		return fmt.Sprintf("%s: want %d elements, got %d", path, want.Len(), got.Len())
	}
	for _, key := range want.MapKeys() {
		in := fmt.Sprintf("%s[%v]", path, key)
		if !got.MapIndex(key).IsValid() {
			return in + ": missing"
		}
		if d := differ(in, want.MapIndex(key), got.MapIndex(key)); d != "" {
			return d
		}
	}
	return ""
}

func unequal(path string, equal bool, want, got reflect.Value) string {
	if equal {
		return ""
	}
	return fmt.Sprintf("%s: want %v, got %v", path, want, got)
}
