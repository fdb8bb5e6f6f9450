// Package fingerprint computes digests of the arguments of an operation. onced keeps
// the one of the first claim, and refuses another claim of the same operation whose
// fingerprint differs: a key that is used again for something else is a bug of the
// caller, and must not get the first one's result.
//
// A fingerprint names its scheme, because only those of one scheme can be compared:
//
//   - cj1, [JSON]: the value of a JSON text, however it is spelled
//   - pb1, [Message]: the fields of a protobuf message, however it was marshalled
//   - raw1, [Raw]: bytes, or a list of byte strings
//
// A scheme never changes. What would make it give other digests is another scheme
// with another name.
//
// All functions are pure, do the same on every machine and in every process, and are
// safe for concurrent use.
//
// This is the whole of the three schemes, for those who write them in another
// language. The files in testdata hold known answers.
//
// # Notation
//
// H is SHA-256, a + b is a followed by b, and "x" is the ASCII bytes between the
// quotes. varint(n) is n in base 128, the low seven bits first, one byte for each
// seven bits, the high bit set in every byte but the last, in as few bytes as it
// takes: LEB128, which protobuf calls a varint. text(b) is varint(number of bytes of
// b) + b. uint64(n) is eight bytes, the most significant first.
//
// # raw1
//
// The digest of the byte strings b1, b2 and so on is
//
//	H(text("onced raw1") + text(b1) + text(b2) + …)
//
// # cj1
//
//  1. Parse the document by RFC 8259. Refuse it if it is not exactly one JSON value
//     with optional white space (space, tab, line feed, carriage return) around it;
//     if it begins with a byte order mark; if it is not UTF-8 (overlong forms and
//     encoded surrogates are not); if an escape \uD800–\uDFFF is not half of a pair,
//     high before low; if two names of one object are the same after their escapes
//     have been resolved; if arrays and objects are nested deeper than 1000, [] being
//     1 deep. Refuse such faults wherever they are, also in what step 2 leaves out.
//  2. With an identity, drop every member that is not named, is not inside a named
//     one, and is not an object on the way to a named one; then drop each object on
//     the way in which nothing is left. With names to ignore, drop the named members;
//     an object that has become empty stays. A path is names with dots between
//     them; it goes from the outermost object through objects alone. Where it meets
//     another value that no shorter path names as a whole, the outermost one among
//     them, it names nothing if it is to be ignored, and the document is refused if
//     it is one of an identity. Refuse the document too if an identity finds none of
//     its members.
//  3. Encode the value:
//     null is "n", true is "t", false is "f".
//     A string is "s" + text(its UTF-8 bytes, escapes resolved, nothing normalised).
//     A number is "d" + text(its normal form).
//     An array is "a" + H("A" + the encodings of its elements, in their order).
//     An object is "o" + H("O" + for each member text(name) + the encoding of its
//     value, in ascending order of the bytes of the names).
//  4. The digest is H(text("onced cj1") + the encoding of the outermost value).
//
// The normal form of a number is text. Zero is "0", with whatever sign, fraction and
// exponent it was written. Every other number is written as an integer d times a
// power of ten 10^e, where d does not end in the digit 0: "-" if it is negative, d
// without leading zeros, "e", and e, with "-" if it is negative and without leading
// zeros; e is "0" if it is zero. There is no limit to d or e, and no rounding:
//
//	1, 1.0, 10e-1      1e0
//	-12.50             -125e-1
//	100, 1E+2          1e2
//	0.001              1e-3
//	1e400              1e400
//	-0, 0.00e99        0
//
// To find it, take the digits of the number without its point, and for e the written
// exponent less the number of digits behind the point; remove the leading zeros, and
// remove the trailing zeros, each of which adds one to e. Exponents may be longer
// than any integer type: add in decimal.
//
// # pb1
//
//  1. With an identity, drop every field that is not named, is not inside a named one,
//     and is not a message on the way to a named one; then drop each message on the
//     way in which nothing is left. Unknown fields and extensions of a message of
//     which not all is taken are dropped too. With names to ignore, drop the named
//     fields. A path is names of fields with dots between them, as in the .proto
//     file; it goes through singular messages other than Any. Refuse a path that the
//     type does not have, whatever the message holds. An identity need find nothing.
//  2. Refuse a message if in what is left messages are nested deeper than 1000, the
//     outermost being 1; if an Any is inside an Any for more than 32 of them; if a
//     string, also one that is a key of a map, is not UTF-8, where of an Any's type_url
//     the name counts alone; if its unknown fields are not well-formed. Faults of what
//     step 1 drops are not looked for.
//  3. Encode the message:
//     A message is "m" + its fields in ascending order of their numbers, extensions
//     among them + its unknown fields in ascending order of their numbers, those of
//     one number in their order + "e".
//     A field is "F" + varint(number) + the encoding of its value. It is left out if
//     it is absent: not set if it has explicit presence; equal to its default if not,
//     where -0 equals 0; empty if it is repeated or a map.
//     An unknown field is "U" + varint(number) + "y" + text(all its bytes on the wire,
//     the tag included). So a map that is unknown counts by the order of its entries,
//     which differs from one time that it is marshalled to the next: make fingerprints
//     where all fields are known, or with an identity.
//  4. Encode values by the type of the field:
//     bool is "b" + one byte, 1 or 0.
//     int32, int64, sint32, sint64, sfixed32, sfixed64 and enums (by number) are "i" +
//     uint64(the value in two's complement).
//     uint32, uint64, fixed32 and fixed64 are "u" + uint64(the value).
//     float and double are "d" + uint64(the bits of the value as an IEEE 754 double),
//     where -0 is 0 and every NaN is 7ff8000000000000.
//     string is "s" + text(its UTF-8 bytes), bytes are "y" + text(the bytes).
//     Messages and groups are as in step 3.
//     A repeated field, packed or not, is "l" + varint(number of elements) + their
//     encodings, in their order.
//     A map is "p" + varint(number of entries) + the encodings of key and value of
//     each, in ascending order of the keys: false before true, numbers by value,
//     strings by their bytes. A missing key or value is its default. What else stands
//     in an entry on the wire is dropped.
//     An enum's number is its value also if the enum is closed, as in proto2, and does
//     not have it: in a field, a repeated one, packed or not, and a map. If a library
//     puts such a number, or the map's whole entry, among the unknown fields, read it
//     from there, and refuse the message if its place among others cannot be told.
//  5. google.protobuf.Any is a message whose field 1 is the full name of the type as a
//     string: what follows the last "/" of type_url, or all of it. If the type is
//     known and the bytes are a valid message of it (text that is no UTF-8 makes them
//     invalid in the types that protobuf itself holds to that), field 2 is that message,
//     encoded as in step 3, also if it is empty; if not, field 2 is the bytes. The other
//     well-known types, Struct among them, are messages like all others.
//  6. The digest is H(text("onced pb1") + the encoding of the outermost message). The
//     name of its type is not in it; the operation's method stands for that.
package fingerprint
