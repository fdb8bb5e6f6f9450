package fingerprint

import (
	"slices"
	"strconv"
)

// appendDecimal appends the normal form of a number of JSON's grammar: sign,
// digits without leading or trailing zeros, "e", exponent. Every zero is "0". The
// work is linear in the length of the number, whatever its value is.
func appendDecimal(dst, number []byte) []byte {
	negative := number[0] == '-'
	if negative {
		number = number[1:]
	}
	whole, rest := cutDigits(number)
	var fraction, exponent []byte
	if len(rest) > 0 && rest[0] == '.' {
		fraction, rest = cutDigits(rest[1:])
	}
	if len(rest) > 0 {
		exponent = rest[1:] // behind the e
	}

	shift := -int64(len(fraction)) // added to the exponent
	if whole = trimLeft(whole); len(whole) == 0 {
		fraction = trimLeft(fraction)
	}
	digits := len(whole) + len(fraction)
	if fraction = trimRight(fraction); len(fraction) == 0 {
		whole = trimRight(whole)
	}
	shift += int64(digits - len(whole) - len(fraction))
	if len(whole)+len(fraction) == 0 {
		return append(dst, '0')
	}

	if negative {
		dst = append(dst, '-')
	}
	dst = append(append(dst, whole...), fraction...)
	return appendExponent(append(dst, 'e'), exponent, shift)
}

// appendExponent appends the sum of an exponent as it was written, perhaps empty,
// and shift.
func appendExponent(dst, written []byte, shift int64) []byte {
	negative := false
	if len(written) > 0 && (written[0] == '-' || written[0] == '+') {
		negative = written[0] == '-'
		written = written[1:]
	}
	written = trimLeft(written)
	if len(written) > 18 {
		return appendLongSum(dst, negative, written, shift)
	}
	var exponent int64
	for _, c := range written {
		exponent = exponent*10 + int64(c-'0')
	}
	if negative {
		exponent = -exponent
	}
	return strconv.AppendInt(dst, exponent+shift, 10)
}

// appendLongSum is appendExponent for exponents of more than 18 digits. They are
// larger than any document is long, so that the sum has the exponent's sign.
func appendLongSum(dst []byte, negative bool, written []byte, shift int64) []byte {
	if negative {
		dst = append(dst, '-')
		shift = -shift
	}
	start := len(dst)
	dst = append(dst, written...)
	for i := len(dst) - 1; shift != 0 && i >= start; i-- {
		sum := int64(dst[i]-'0') + shift%10
		shift /= 10
		switch {
		case sum > 9:
			sum, shift = sum-10, shift+1
		case sum < 0:
			sum, shift = sum+10, shift-1
		}
		dst[i] = byte('0' + sum)
	}
	if shift > 0 {
		return slices.Insert(dst, start, '1')
	}
	if dst[start] == '0' {
		return slices.Delete(dst, start, start+1)
	}
	return dst
}

// cutDigits returns the digits that b begins with, and the rest.
func cutDigits(b []byte) (digits, rest []byte) {
	i := 0
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return b[:i], b[i:]
}

func trimLeft(digits []byte) []byte {
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
	}
	return digits
}

func trimRight(digits []byte) []byte {
	for len(digits) > 0 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	return digits
}
