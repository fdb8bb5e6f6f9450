package fingerprint_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/fingerprint"
)

// The files in testdata are the known answers of the three schemes, for this package
// and for those in other languages. They are for good: fingerprints stand in stores,
// and are compared with those of later builds. A vector is never changed or taken
// out, and nothing here writes the files; new vectors are added by hand. Whoever
// needs another answer needs a scheme with another name.

type vector struct {
	Name        string   `json:"name"`
	Doc         *string  `json:"doc"`        // cj1, raw1: as text
	DocBase64   []byte   `json:"doc_base64"` // cj1, raw1: if it is not UTF-8
	Message     string   `json:"message"`    // pb1: full name of the type
	WireBase64  []byte   `json:"wire_base64"`
	Identity    []string `json:"identity"`
	Ignore      []string `json:"ignore"`
	Fingerprint string   `json:"fingerprint"`
	Refused     bool     `json:"refused"`
	Reason      string   `json:"reason"`
}

// doc returns the bytes of a document.
func (v vector) doc() []byte {
	if v.Doc != nil {
		return []byte(*v.Doc)
	}
	return v.DocBase64
}

func (v vector) options() (opts []fingerprint.Option) {
	if v.Identity != nil {
		opts = append(opts, fingerprint.Identity(v.Identity...))
	}
	if v.Ignore != nil {
		opts = append(opts, fingerprint.Ignore(v.Ignore...))
	}
	return opts
}

// vectorFile reads a file of testdata strictly, so that a misspelt member is seen.
func vectorFile(t *testing.T, name string, least int, into any, vectors *[]vector) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	decoder := json.NewDecoder(f)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(*vectors) < least {
		t.Fatalf("%s has %d vectors; it had %d once", name, len(*vectors), least)
	}
	names := map[string]bool{}
	for _, v := range *vectors {
		if names[v.Name] || v.Refused == (v.Fingerprint != "") {
			t.Errorf("%s: %q stands twice, or has not exactly one answer", name, v.Name)
		}
		names[v.Name] = true
	}
}

func TestVectorsJSON(t *testing.T) {
	var file struct {
		Comment string
		Vectors []vector
	}
	vectorFile(t, "cj1.json", 300, &file, &file.Vectors)
	for _, v := range file.Vectors {
		got, err := fingerprint.JSON(v.doc(), v.options()...)
		if v.Refused != (err != nil) || err == nil && got.String() != v.Fingerprint {
			t.Errorf("%s: got %v, %v; want %s (refused: %v, %s)", v.Name, got, err, v.Fingerprint, v.Refused, v.Reason)
		}
		want, err := refCJ1(v.doc(), v.Identity, v.Ignore)
		if v.Refused != (err != nil) || err == nil && want != v.Fingerprint {
			t.Errorf("%s: the reference says %s, %v", v.Name, want, err)
		}
	}
}

func TestVectorsMessage(t *testing.T) {
	var file struct {
		Comment     string
		Descriptors []byte `json:"file_descriptor_set_base64"`
		Vectors     []vector
	}
	vectorFile(t, "pb1.json", 100, &file, &file.Vectors)
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(file.Descriptors, &set); err != nil {
		t.Fatal(err)
	}
	// The standard files come with every protobuf library, the set has the others.
	files, err := protodesc.FileOptions{}.NewFiles(withStandard(&set))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range file.Vectors {
		d, err := files.FindDescriptorByName(protoreflect.FullName(v.Message))
		if err != nil {
			t.Fatal(err)
		}
		m := dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor))
		options := proto.UnmarshalOptions{AllowPartial: true, Resolver: dynamicpb.NewTypes(files)}
		if err := options.Unmarshal(v.WireBase64, m); err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
		got, err := fingerprint.Message(m, v.options()...)
		if v.Refused != (err != nil) || err == nil && got.String() != v.Fingerprint {
			t.Errorf("%s: got %v, %v; want %s (refused: %v, %s)", v.Name, got, err, v.Fingerprint, v.Refused, v.Reason)
		}
	}
}

// withStandard adds the standard files that a set depends on.
func withStandard(set *descriptorpb.FileDescriptorSet) *descriptorpb.FileDescriptorSet {
	all := proto.CloneOf(set)
	for _, path := range []string{"google/protobuf/any.proto", "google/protobuf/struct.proto"} {
		if fd, err := protoregistry.GlobalFiles.FindFileByPath(path); err == nil {
			all.File = append(all.File, protodesc.ToFileDescriptorProto(fd))
		}
	}
	return all
}

func TestVectorsRaw(t *testing.T) {
	var file struct {
		Comment string
		Vectors []vector
	}
	vectorFile(t, "raw1.json", 8, &file, &file.Vectors)
	seen := map[string]string{}
	for _, v := range file.Vectors {
		got := fingerprint.Raw(v.doc()).String()
		if got != v.Fingerprint {
			t.Errorf("%s: got %s, want %s", v.Name, got, v.Fingerprint)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%s is %s", v.Name, other)
		}
		seen[got] = v.Name
	}
	if fingerprint.Raw(nil) != fingerprint.Raw([]byte{}) {
		t.Error("no bytes are not no bytes")
	}
}
