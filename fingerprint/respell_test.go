package fingerprint_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"unicode/utf16"
)

// speller writes a tree in one of its many spellings.
type speller struct {
	*rand.Rand
	b strings.Builder
}

// respell returns another spelling of the same value.
func respell(r *rand.Rand, v any) string {
	s := &speller{Rand: r}
	s.value(v)
	return s.b.String()
}

func (s *speller) space() {
	for s.IntN(4) == 0 {
		s.b.WriteByte(" \t\r\n"[s.IntN(4)])
	}
}

func (s *speller) value(v any) {
	s.space()
	defer s.space()
	switch v := v.(type) {
	case nil:
		s.b.WriteString("null")
	case bool:
		fmt.Fprint(&s.b, v)
	case string:
		s.text(v)
	case refNumber:
		s.b.WriteString(s.number(string(v)))
	case []any:
		s.b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				s.b.WriteByte(',')
			}
			s.value(e)
		}
		s.list(len(v))
		s.b.WriteByte(']')
	case refObject:
		s.b.WriteByte('{')
		for i, j := range s.Perm(len(v)) {
			if i > 0 {
				s.b.WriteByte(',')
			}
			s.space()
			s.text(v[j].name)
			s.space()
			s.b.WriteByte(':')
			s.value(v[j].value)
		}
		s.list(len(v))
		s.b.WriteByte('}')
	}
}

// list writes white space into an empty array or object.
func (s *speller) list(n int) {
	if n == 0 {
		s.space()
	}
}

func (s *speller) text(text string) {
	s.b.WriteByte('"')
	for _, r := range text {
		short := strings.IndexRune("\"\\/\b\f\n\r\t", r)
		switch must := r < ' ' || r == '"' || r == '\\'; {
		case short >= 0 && s.IntN(2) == 0:
			s.b.WriteByte('\\')
			s.b.WriteByte(`"\/bfnrt`[short])
		case must || s.IntN(4) == 0:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&s.b, []string{`\u%04x`, `\u%04X`}[s.IntN(2)], unit)
			}
		default:
			s.b.WriteRune(r)
		}
	}
	s.b.WriteByte('"')
}

// number moves the point, adds zeros, and spells the exponent anew.
func (s *speller) number(written string) string {
	digits, exponent := refDecimal(written)
	if digits.Sign() == 0 {
		return []string{"0", "-0", "0.0", "-0.000", "0e0", "0E+5", "-0e-99", "0.00e00012345678901234567890"}[s.IntN(8)]
	}
	sign := ""
	if digits.Sign() < 0 {
		sign = "-"
	}
	zeros := s.IntN(4)
	d := strings.TrimPrefix(digits.String(), "-") + strings.Repeat("0", zeros)
	fraction := s.IntN(len(d) + 3)
	if fraction >= len(d) {
		d = strings.Repeat("0", fraction-len(d)+1) + d
	}
	e := new(big.Int).Add(exponent, big.NewInt(int64(fraction-zeros)))
	out := sign + d[:len(d)-fraction]
	if fraction > 0 {
		out += "." + d[len(d)-fraction:]
	}
	if e.Sign() == 0 && s.IntN(2) == 0 {
		return out
	}
	out += []string{"e", "E"}[s.IntN(2)]
	switch {
	case e.Sign() < 0, e.Sign() == 0 && s.IntN(3) == 0:
		out += "-"
	case s.IntN(2) == 0:
		out += "+"
	}
	return out + strings.Repeat("0", s.IntN(3)) + new(big.Int).Abs(e).String()
}

// change returns the tree with one value in it replaced by another one.
func change(r *rand.Rand, v any) any {
	switch v := v.(type) {
	case []any:
		if len(v) > 0 && r.IntN(3) > 0 {
			list := append([]any{}, v...)
			i := r.IntN(len(list))
			list[i] = change(r, list[i])
			return list
		}
	case refObject:
		if len(v) > 0 && r.IntN(3) > 0 {
			object := append(refObject{}, v...)
			i := r.IntN(len(object))
			object[i].value = change(r, object[i].value)
			return object
		}
	}
	return other(r, v)
}

// other returns a value that differs from v.
func other(r *rand.Rand, v any) any {
	switch v := v.(type) {
	case nil:
		return []any{false, "", "null", refNumber("0"), []any{}, refObject{}}[r.IntN(6)]
	case bool:
		return []any{!v, fmt.Sprint(v), nil, refNumber("1")}[r.IntN(4)]
	case string:
		return []any{v + "\x00", v + " ", "\ufeff" + v, []any{v}, nil}[r.IntN(5)]
	case refNumber:
		digits, exponent := refDecimal(string(v))
		if digits.Sign() == 0 {
			return []any{refNumber("1e-99999999999999999999"), refNumber("-1"), "0", false}[r.IntN(4)]
		}
		one := big.NewInt(1)
		return []any{
			refNumber(new(big.Int).Neg(digits).String() + "e" + exponent.String()),
			refNumber(digits.String() + "e" + new(big.Int).Add(exponent, one).String()),
			refNumber(digits.String() + "e" + new(big.Int).Sub(exponent, one).String()),
			refNumber(digits.String() + "1e" + exponent.String()),
			string(v), refNumber("0"),
		}[r.IntN(6)]
	case []any:
		if len(v) > 0 && r.IntN(2) == 0 {
			return v[:len(v)-1]
		}
		return []any{append(v[:len(v):len(v)], nil), []any{v}, refObject{{"", v}}}[r.IntN(3)]
	}
	object := v.(refObject)
	if len(object) == 0 {
		return []any{[]any{}, nil, refObject{{"", nil}}, ""}[r.IntN(4)]
	}
	if i := r.IntN(len(object) + 1); i < len(object) {
		return append(object[:i:i], object[i+1:]...)
	}
	longest := ""
	for _, m := range object {
		if len(m.name) >= len(longest) {
			longest = m.name
		}
	}
	return append(object[:len(object):len(object)], refMember{longest + "+", nil})
}
