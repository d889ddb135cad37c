package mapping

import (
	"encoding/binary"
	"encoding/hex"
)

// decodeHex fills out with the bytes that the hex digits stand for. There are twice as many digits. Payloads
// of bytea come in this form, and decoding them is the largest part of the work on a row. So it decodes eight
// digits at a time within one word.
func decodeHex(out, digits []byte) bool {
	digits = digits[:2*len(out)]
	valid, done := uint64(highBits), 0
	for ; done+8 <= len(out); done += 8 {
		sixteen := digits[2*done : 2*done+16 : 2*done+16] // a single bounds check
		first, second := binary.LittleEndian.Uint64(sixteen), binary.LittleEndian.Uint64(sixteen[8:])
		valid &= hexDigits(first) & hexDigits(second)
		binary.LittleEndian.PutUint64(out[done:done+8:done+8], hexValue(first)|hexValue(second)<<32)
	}
	_, err := hex.Decode(out[done:], digits[2*done:])
	return valid == highBits && err == nil
}

// Each constant has the same byte in each of a word's eight bytes.
const (
	ones     = 0x0101010101010101
	highBits = 0x80 * ones
)

// hexDigits sets the high bit of each byte that is a hex digit. Adding 0x80-x to a byte below 0x80 sets its
// high bit if the byte is x or more, and carries nothing into the next byte. Bytes from 0x80 on are masked
// out.
func hexDigits(word uint64) uint64 {
	low := word &^ highBits
	digit := (low + (0x80-'0')*ones) &^ (low + (0x80-'9'-1)*ones)
	lower := low | 0x20*ones
	letter := (lower + (0x80-'a')*ones) &^ (lower + (0x80-'f'-1)*ones)
	return (digit | letter) &^ word & highBits
}

// hexValue returns the four bytes that eight digits stand for. The first digit is in the lowest byte.
func hexValue(word uint64) uint64 {
	// A letter's low four bits are 1 to 6. It also has bit 6 set, which digits have not.
	nibbles := word&(0x0F*ones) + 9*(word>>6&ones)
	pairs := (nibbles<<4 | nibbles>>8) & 0x00FF00FF00FF00FF
	pairs = (pairs | pairs>>8) & 0x0000FFFF0000FFFF
	return (pairs | pairs>>16) & 0xFFFFFFFF
}

// parseUUID parses the form that PostgreSQL prints, in upper or lower case.
func parseUUID(out, text []byte) bool {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return false
	}
	return decodeHex(out[0:4], text[0:8]) && decodeHex(out[4:6], text[9:13]) &&
		decodeHex(out[6:8], text[14:18]) && decodeHex(out[8:10], text[19:23]) &&
		decodeHex(out[10:16], text[24:36])
}

// appendUUID appends 16 bytes in the form that PostgreSQL prints.
func appendUUID(out, uuid []byte) []byte {
	for i, part := range [][]byte{uuid[0:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:16]} {
		if i > 0 {
			out = append(out, '-')
		}
		out = hex.AppendEncode(out, part)
	}
	return out
}
