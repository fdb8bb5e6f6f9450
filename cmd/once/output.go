package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// printer shows the answers of the service, as JSON to programs and as lines to
// people.
type printer struct {
	to   io.Writer
	json bool
}

// print shows an answer: as it came, or the rows that were made of it.
func (p printer) print(answer proto.Message, text rows) error {
	if !p.json {
		return text.write(p.to)
	}
	line, err := jsonLine(answer)
	if err != nil {
		return err
	}
	_, err = p.to.Write(append(line, '\n'))
	return err
}

// jsonLine is the message as JSON with the field names of the proto files, on
// one line. protojson puts in blanks at random so that nobody relies on its
// bytes; scripts may rely on these.
func jsonLine(m proto.Message) ([]byte, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, b); err != nil {
		return nil, err
	}
	return line.Bytes(), nil
}

// rows are aligned lines of a name and a value. Rows without a value are not
// added.
type rows [][2]string

func (r *rows) add(name, value string) {
	if value != "" {
		*r = append(*r, [2]string{name, value})
	}
}

func (r rows) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range r {
		fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
	}
	return w.Flush()
}

// addOperation adds what people want to know of an operation.
func (r *rows) addOperation(op *oncedv1.Operation) {
	if op == nil {
		return
	}
	r.add("key", printable(op.GetRef().GetKey()))
	r.add("method", printable(op.GetRef().GetMethod()))
	r.add("state", stateName(op))
	r.add("holder", printable(op.GetHolder()))
	r.add("since", moment(op.GetClaimTime()))
	if op.GetState() == oncedv1.State_STATE_PENDING {
		r.add("lease left", span(op.GetLeaseRemaining()))
	}
	r.add("attempt", number(uint64(op.GetAttempt())))
	r.add("fence", number(op.GetFence()))
	if op.GetFirstClaimTime().AsTime() != op.GetClaimTime().AsTime() {
		r.add("first claimed", moment(op.GetFirstClaimTime()))
	}
	r.add("settled", moment(op.GetSettleTime()))
	r.add("settled by", enumName(op.GetSettledBy().String(), "SETTLED_BY_"))
	r.addResult(op.GetResult())
	r.addFailure(op.GetFailure())
}

func (r *rows) addResult(result *oncedv1.Result) {
	size := number(result.GetSize()) + " bytes"
	switch kind := result.GetKind().(type) {
	case nil:
	case *oncedv1.Result_Stored:
		r.add("content type", printable(kind.Stored.GetContentType()))
		if kind.Stored.GetBody() == nil { // a report is answered without the bytes
			r.add("result", size)
		} else {
			r.add("result", content(kind.Stored))
		}
	case *oncedv1.Result_Omitted:
		r.add("result", "executed; "+size+" that were not stored, SHA-256 "+fmt.Sprintf("%x", result.GetSha256()))
	case *oncedv1.Result_Dropped:
		r.add("result", "executed; "+size+" that are no longer stored, SHA-256 "+fmt.Sprintf("%x", result.GetSha256()))
	default:
		r.add("result", "executed; of a kind that this build of once does not know")
	}
}

func (r *rows) addFailure(failure *oncedv1.Failure) {
	r.add("failure", printable(failure.GetCode()))
	r.add("message", printable(failure.GetMessage()))
	if failure.GetDetails() != nil {
		r.add("details", content(failure.GetDetails()))
	}
}

// content is a payload for people: text as it is, other bytes by their number.
func content(p *oncedv1.Payload) string {
	if data, ok := p.GetBody().(*oncedv1.Payload_Data); ok {
		return fmt.Sprintf("%d bytes; -o json shows them", len(data.Data))
	}
	if p.GetText() == "" {
		return "(empty)"
	}
	return printable(p.GetText())
}

// stateName is the state, with the reason if it is unresolved.
func stateName(op *oncedv1.Operation) string {
	state := enumName(op.GetState().String(), "STATE_")
	if reason := enumName(op.GetReason().String(), "REASON_"); reason != "" {
		state += " (" + reason + ")"
	}
	return state
}

// enumName is the name of an enum value without its prefix; unspecified is "".
func enumName(name, prefix string) string {
	name = strings.TrimPrefix(name, prefix)
	if name == "UNSPECIFIED" {
		return ""
	}
	return name
}

// printable is text from elsewhere on one line of a terminal: quoted if it
// holds anything that a terminal could act on.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return strconv.Quote(s)
	}
	return s
}

func moment(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format("2006-01-02T15:04:05.000Z")
}

// span is a duration without the zeros at its end: 24h rather than 24h0m0s.
func span(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	s := d.AsDuration().Round(time.Millisecond).String()
	if short, cut := strings.CutSuffix(s, "m0s"); cut {
		s = short + "m"
	}
	if short, cut := strings.CutSuffix(s, "h0m"); cut {
		s = short + "h"
	}
	return s
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
