package fingerprint_test

import (
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onced/onced/fingerprint"
)

// A retry may spell the same arguments in another way.
func ExampleJSON() {
	first, err := fingerprint.JSON([]byte(`{"account": 9007199254740993, "amount": 5.00}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	retry, _ := fingerprint.JSON([]byte(`{"amount":5,"account":9007199254740993}`))
	other, _ := fingerprint.JSON([]byte(`{"amount":5,"account":9007199254740992}`))
	fmt.Println(first)
	fmt.Println(first == retry, first == other)

	_, err = fingerprint.JSON([]byte(`{"amount":5,"amount":500}`))
	fmt.Println(err)
	// Output:
	// cj1:f995e7b80e9feaa05102482f3c6469831ee437b488588f7f79861501d3dc42c7
	// true false
	// cj1: the name at byte 12 stands twice in its object; send each name once
}

// Members that say nothing about what is to be done do not count.
func ExampleIdentity() {
	order := fingerprint.Identity("order.id", "amount")
	first, err := fingerprint.JSON([]byte(`{"order":{"id":"o-1","seen":1},"amount":5,"trace":"a1"}`), order)
	if err != nil {
		fmt.Println(err)
		return
	}
	retry, _ := fingerprint.JSON([]byte(`{"order":{"id":"o-1","seen":2},"amount":5,"trace":"b7"}`), order)
	other, _ := fingerprint.JSON([]byte(`{"order":{"id":"o-2","seen":1},"amount":5,"trace":"a1"}`), order)
	fmt.Println(first == retry, first == other)

	_, err = fingerprint.JSON([]byte(`{"trace":"a1"}`), order)
	fmt.Println(err)
	// Output:
	// true false
	// cj1: the document has none of the members that make its identity; name members that it has, or send them
}

// Ignore is for members that change with each try.
func ExampleIgnore() {
	first, err := fingerprint.JSON([]byte(`{"to":"ann","text":"hello","meta":{"attempt":1}}`), fingerprint.Ignore("meta.attempt"))
	if err != nil {
		fmt.Println(err)
		return
	}
	retry, _ := fingerprint.JSON([]byte(`{"to":"ann","text":"hello","meta":{"attempt":2}}`), fingerprint.Ignore("meta.attempt"))
	fmt.Println(first == retry)
	// Output: true
}

// A message's fingerprint is of its fields. Its bytes may differ from one marshal to
// the next.
func ExampleMessage() {
	request, err := structpb.NewStruct(map[string]any{"to": "ann", "amount": 5, "note": nil})
	if err != nil {
		fmt.Println(err)
		return
	}
	print, err := fingerprint.Message(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(print)
	// Output: pb1:74fc645b191ad5a3d072e7230d60754d7694117e68eba16ac6882b53ae2cc1c1
}

// Bytes that are neither JSON nor a message are compared byte for byte.
func ExampleRaw() {
	fmt.Println(fingerprint.Raw([]byte("to=ann&amount=5")))
	// Output: raw1:4e90c36bdc5a54efca0da90cd7fffa08a62ebeb767f9cd62245e74621dad071e
}
