package oncegrpc

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// The service of the tests, as a user's .proto file would have it. All of its methods
// take a Request and answer with a Response:
//
//	message Request  { string request_id = 1; string account = 2; int64 amount = 3; string trace = 4; Header header = 5; }
//	message Header   { string request_id = 1; }
//	message Response { string id = 1; bool replayed = 2; string note = 3; }
const toolsService = "oncegrpc.test.v1.Tools"

const readOnly = descriptorpb.MethodOptions_NO_SIDE_EFFECTS

// toolMethod is a method of the test service.
type toolMethod struct {
	name    string
	level   descriptorpb.MethodOptions_IdempotencyLevel
	option  *oncedv1.Guard
	streams bool // the server's side
}

// toolMethods are the methods that every rig serves. Those whose option is impossible
// are in wrongMethods.
var toolMethods = []toolMethod{
	{name: "Pay"}, // no option: guarded with the defaults
	{name: "Read", level: readOnly},
	{name: "ReadKeyed", level: readOnly, option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_REQUIRED}},
	{name: "Idempotent", level: descriptorpb.MethodOptions_IDEMPOTENT},
	{name: "Optional", option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OPTIONAL}},
	{name: "Off", option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OFF}},
	{name: "Field", option: &oncedv1.Guard{KeyField: "request_id"}},
	{name: "NestedField", option: &oncedv1.Guard{KeyField: "header.request_id", IgnoredFields: []string{"trace"}}},
	{name: "Ignoring", option: &oncedv1.Guard{IgnoredFields: []string{"trace"}}},
	{name: "Identified", option: &oncedv1.Guard{IdentityFields: []string{"account"}}},
	{name: "Declared", option: &oncedv1.Guard{NotExecutedCodes: []string{"INVALID_ARGUMENT", "UNAVAILABLE", "NOT_FOUND"}}},
	{name: "Flagged", option: &oncedv1.Guard{ReplayedField: "replayed"}},
	{name: "Renamed", option: &oncedv1.Guard{Method: "tools.v0/OldName"}},
	{name: "Leased", option: &oncedv1.Guard{Lease: durationpb.New(90 * time.Second)}},
	{name: "Rerun", option: &oncedv1.Guard{SafeToRerun: true}},
	{name: "Watch", level: readOnly, streams: true},
	{name: "Feed", streams: true},
	{name: "FeedOptional", option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OPTIONAL}, streams: true},
	{name: "FeedOff", option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OFF}, streams: true},
}

var requestDesc, responseDesc protoreflect.MessageDescriptor

func init() {
	messages := &descriptorpb.FileDescriptorProto{
		Name: proto.String("oncegrpc/test/v1/messages.proto"), Package: proto.String("oncegrpc.test.v1"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			messageDesc("Header", "request_id string"),
			messageDesc("Request", "request_id string", "account string", "amount int64", "trace string", "header Header"),
			messageDesc("Response", "id string", "replayed bool", "note string"),
			messageDesc("Other", "id string"),
		},
	}
	file := register(messages)
	requestDesc, responseDesc = file.Messages().ByName("Request"), file.Messages().ByName("Response")
	for i := range file.Messages().Len() {
		if err := protoregistry.GlobalTypes.RegisterMessage(dynamicpb.NewMessageType(file.Messages().Get(i))); err != nil {
			panic(err)
		}
	}
	registerService("Tools", toolMethods)
}

// registerService makes a service of the package oncegrpc.test.v1 known, as a linked
// .pb.go file does. Its name must be new in the program.
func registerService(name string, methods []toolMethod) {
	registerServiceOf(name, methods, nil, func(toolMethod) string { return "Response" })
}

// registerServiceOf does so for methods that take a message which comes with the service,
// nil for a Request, and whose answers are what output says.
func registerServiceOf(name string, methods []toolMethod, input *descriptorpb.DescriptorProto, output func(toolMethod) string) {
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("oncegrpc/test/v1/" + strings.ToLower(name) + ".proto"), Package: proto.String("oncegrpc.test.v1"), Syntax: proto.String("proto3"),
		Dependency: []string{"oncegrpc/test/v1/messages.proto"}, Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String(name)}},
	}
	takes := "Request"
	if input != nil {
		takes, file.MessageType = input.GetName(), []*descriptorpb.DescriptorProto{input}
	}
	for _, m := range methods {
		options := &descriptorpb.MethodOptions{}
		if m.level != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN {
			options.IdempotencyLevel = m.level.Enum()
		}
		if m.option != nil {
			proto.SetExtension(options, oncedv1.E_Guard, m.option)
		}
		file.Service[0].Method = append(file.Service[0].Method, &descriptorpb.MethodDescriptorProto{
			Name: proto.String(m.name), Options: options, ServerStreaming: proto.Bool(m.streams),
			InputType: proto.String(".oncegrpc.test.v1." + takes), OutputType: proto.String(".oncegrpc.test.v1." + output(m)),
		})
	}
	register(file)
}

// register makes a file known.
// register makes a file known, once: with -count the tests run again in one program.
func register(fd *descriptorpb.FileDescriptorProto) protoreflect.FileDescriptor {
	if known, err := protoregistry.GlobalFiles.FindFileByPath(fd.GetName()); err == nil {
		return known
	}
	file, err := protodesc.NewFile(fd, protoregistry.GlobalFiles)
	if err == nil {
		err = protoregistry.GlobalFiles.RegisterFile(file)
	}
	if err != nil {
		panic(err)
	}
	return file
}

// messageDesc describes a message by its fields, numbered from 1.
func messageDesc(name string, fields ...string) *descriptorpb.DescriptorProto {
	kinds := map[string]descriptorpb.FieldDescriptorProto_Type{
		"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "int64": descriptorpb.FieldDescriptorProto_TYPE_INT64,
		"bool": descriptorpb.FieldDescriptorProto_TYPE_BOOL,
	}
	m := &descriptorpb.DescriptorProto{Name: proto.String(name)}
	for i, field := range fields {
		field, kind, _ := strings.Cut(field, " ")
		fd := &descriptorpb.FieldDescriptorProto{
			Name: proto.String(field), Number: proto.Int32(int32(i + 1)), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}
		if typ, ok := kinds[kind]; ok {
			fd.Type = typ.Enum()
		} else {
			fd.Type, fd.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".oncegrpc.test.v1."+kind)
		}
		m.Field = append(m.Field, fd)
	}
	return m
}

// request makes a Request from names of fields, and their values, in turn.
func request(fields ...any) *dynamicpb.Message {
	return fill(dynamicpb.NewMessage(requestDesc), fields)
}

// response makes a Response in the same way.
func response(fields ...any) *dynamicpb.Message {
	return fill(dynamicpb.NewMessage(responseDesc), fields)
}

func fill(m *dynamicpb.Message, fields []any) *dynamicpb.Message {
	for i := 0; i < len(fields); i += 2 {
		at, name := m.ProtoReflect(), fields[i].(string)
		if outer, inner, nested := strings.Cut(name, "."); nested {
			at, name = at.Mutable(at.Descriptor().Fields().ByName(protoreflect.Name(outer))).Message(), inner
		}
		value := fields[i+1]
		if n, ok := value.(int); ok {
			value = int64(n)
		}
		at.Set(at.Descriptor().Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(value))
	}
	return m
}

// text is a string field of a message.
func text(m proto.Message, name string) string {
	at := m.ProtoReflect()
	return at.Get(at.Descriptor().Fields().ByName(protoreflect.Name(name))).String()
}

// replayedIn tells whether a Response says that it is a replay.
func replayedIn(m proto.Message) bool {
	return m.ProtoReflect().Get(responseDesc.Fields().ByName("replayed")).Bool()
}
